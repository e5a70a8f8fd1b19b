"""One figure or word as nvidia-smi prints it. None = not reported; nothing is ever read as zero that does not say 0."""

from __future__ import annotations

import re

from webapp.domain.gpu import MigMode

MOST_PID = 4_194_304        # the kernel's PID_MAX_LIMIT; a tegra driver prints garbage beyond it (promises.md 5)
MOST_NAME = 4096            # characters kept of a name

# The one null set, without brackets and in lower case (promises.md 3, 8; shared recordings).
NULLS = frozenset({
    "", "n/a", "not supported", "not found", "not available", "unknown error", "err!", "function not found",
    "insufficient permissions", "requested functionality has been deprecated", "no data", "gpu is lost",
    "gpu requires reset", "reset required",
})
NOT_REPORTED = frozenset({"n/a", "not supported"})  # what a sound device without that figure says
_NUMBER = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z%]{0,8})")
_BYTES = {"": 2**20, "mib": 2**20, "mb": 2**20, "kib": 2**10, "kb": 2**10, "gib": 2**30, "gb": 2**30, "b": 1}
_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in range(32) if chr(code) not in "\t\n\r\x1b"}


def decode(output: bytes) -> str:
    """Text of any bytes: names in other encodings do not matter (promises.md 16, 20), and NUL is no text."""
    return output.decode("utf-8", errors="replace").translate(_CONTROLS)


def word(cell: str | None) -> str | None:
    """The cell without brackets round the whole of it, stripped, in lower case: for comparing."""
    if cell is None:
        return None
    cell = cell.strip()
    return (cell[1:-1].strip() if cell.startswith("[") and cell.endswith("]") else cell).lower()


def text(cell: str | None) -> str | None:
    """The cell as printed; None for the null set and for every other message in brackets."""
    if cell is None or word(cell) in NULLS:
        return None
    cell = cell.strip()
    return None if cell.startswith("[") and cell.endswith("]") else cell[:MOST_NAME]


def name(cell: str | None) -> str | None:
    """Name of a process: brackets are allowed in it (a daemon may call itself `[worker]`)."""
    return None if cell is None or word(cell) in NULLS else cell.strip()[:MOST_NAME]


def whole(cell: str | None, *, least: int = 0, most: int = 2**31, unit: str = "") -> int | None:
    """A whole number within least and most, with this unit or without one."""
    figure = _number(cell)
    if figure is None or "." in figure[0] or figure[1] not in ("", unit):
        return None
    number = int(figure[0])
    return number if least <= number <= most else None


def percent(cell: str | None, *, most: int = 100) -> int | None:
    return whole(cell, most=most, unit="%")


def celsius(cell: str | None) -> int | None:
    return whole(cell, least=-100, most=300, unit="C")


def watts(cell: str | None) -> float | None:
    figure = _number(cell)
    number = float(figure[0]) if figure and figure[1] in ("", "W") else -1.0
    return number if 0 <= number <= 100_000 else None


def memory_bytes(cell: str | None) -> int | None:
    """Bytes of `81559 MiB`; a number without a unit is MiB (that is what nounits leaves out)."""
    figure = _number(cell)
    if figure is None or "." in figure[0] or figure[0].startswith("-"):
        return None
    unit = _BYTES.get(figure[1].lower())
    return int(figure[0]) * unit if unit else None


def mig_mode(cell: str | None) -> MigMode | None:
    return next((mode for mode in MigMode if mode.lower() == word(cell)), None)


def pid(cell: str | None) -> int | None:
    return whole(cell, least=1, most=MOST_PID)


def _number(cell: str | None) -> tuple[str, str] | None:
    match = _NUMBER.fullmatch(cell.strip()) if cell else None
    return (match[1], match[2]) if match else None
