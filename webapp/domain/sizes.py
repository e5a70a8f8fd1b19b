"""Amounts that people type: memory and disk in bytes, CPU in thousandths of a core.

Berth reads them itself because Docker's own reading fails badly: `mem_limit='0.5'` becomes 0, which means unlimited
and raises nothing, and `8Gi` is refused with an error about something else (docker-py#813; tried).
"""

from __future__ import annotations

import re

from webapp.domain.names import excerpt
from webapp.errors import N_, InvalidInput

MIB = 2**20
GIB = 2**30
TIB = 2**40
MOST_BYTES = (10**12 - 1) * MIB  # twelve digits of MiB; below 2**63, so that every column and API field can hold it
LEAST_CPU_MILLIS = 100

_UNITS = {"TiB": TIB, "GiB": GIB, "MiB": MIB}  # largest first
_SHOWN_UNITS = (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", 2**10), ("B", 1))
_SIZE = re.compile(r"([1-9][0-9]{0,11}) ?(MiB|GiB|TiB)")
_CPUS = re.compile(r"(0|[1-9][0-9]{0,4})(?:\.([0-9]{1,2}))?")


def parse_size(text: str, *, field: str, minimum: int, maximum: int | None) -> int:
    """Bytes from a whole number and MiB, GiB or TiB, such as `8GiB` or `8 GiB`.

    Args:    minimum, maximum: bytes, both allowed; None = no limit but MOST_BYTES.
    Raises:  InvalidInput: any other text, or an amount outside the limits.
    """
    match = _SIZE.fullmatch(text)
    if not match:
        raise InvalidInput.of(
            field,
            N_("“%(given)s” is not a size. Write a whole number and MiB, GiB or TiB, for example 8GiB."),
            given=excerpt(text),
        )
    n_bytes = int(match[1]) * _UNITS[match[2]]
    if n_bytes < minimum:
        least = -(-minimum // MIB) * MIB  # rounded up, so that what the message names is accepted
        raise InvalidInput.of(
            field, N_("%(given)s is too little. The least is %(least)s."), given=text, least=_exact(least, " ")
        )
    most = MOST_BYTES if maximum is None else min(maximum, MOST_BYTES)
    if n_bytes > most:
        raise InvalidInput.of(
            field, N_("%(given)s is too much. The most is %(most)s."), given=text, most=_exact(most // MIB * MIB, " ")
        )
    return n_bytes


def format_size(n_bytes: int) -> str:
    """The size in the largest unit that is exact, such as `8GiB` or `1536MiB`; parse_size gives the same bytes back.

    Args:    n_bytes: a multiple of 1 MiB from 1 MiB to MOST_BYTES.
    Raises:  ValueError: any other number.
    """
    if n_bytes % MIB or not MIB <= n_bytes <= MOST_BYTES:
        raise ValueError(f"not a whole number of MiB from 1 MiB to {MOST_BYTES} bytes: {n_bytes}")
    return _exact(n_bytes, "")


def show_size(n_bytes: int) -> str:
    """The size for people, rounded to a tenth of the largest unit that fits: `8 GiB`, `79.6 GiB`, `512 B`.

    Raises:  ValueError: negative.
    """
    if n_bytes < 0:
        raise ValueError(f"a size is never negative: {n_bytes}")
    place = next((i for i, (_, size) in enumerate(_SHOWN_UNITS) if n_bytes >= size), len(_SHOWN_UNITS) - 1)
    if place > 0 and _tenths(n_bytes, _SHOWN_UNITS[place][1]) >= 10_240:  # 1023.96 MiB is shown as 1 GiB
        place -= 1
    unit, size = _SHOWN_UNITS[place]
    whole, tenth = divmod(_tenths(n_bytes, size), 10)
    return f"{whole}.{tenth} {unit}" if tenth else f"{whole} {unit}"


def parse_cpus(text: str, *, field: str, maximum: int) -> int:
    """Thousandths of a core (cpu_millis; Docker's NanoCpus is this × 10**6) from `1`, `0.5` or `2.25`.

    Args:    maximum: thousandths of a core, itself allowed.
    Raises:  InvalidInput: any other text, less than 0.1, or more than the maximum.
    """
    match = _CPUS.fullmatch(text)
    if not match:
        raise InvalidInput.of(
            field,
            N_("“%(given)s” is not a number of CPUs. Write a number with at most two decimals, for example 2 or 0.5."),
            given=excerpt(text),
        )
    cpu_millis = int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0"))
    if cpu_millis < LEAST_CPU_MILLIS:
        raise InvalidInput.of(
            field,
            N_("%(given)s CPUs are too few. The least is %(least)s."),
            given=text,
            least=format_cpus(LEAST_CPU_MILLIS),
        )
    if cpu_millis > maximum:
        raise InvalidInput.of(
            field,
            N_("%(given)s CPUs are too many. The most is %(most)s."),
            given=text,
            most=format_cpus(max(maximum, 0) // 10 * 10),
        )
    return cpu_millis


def format_cpus(cpu_millis: int) -> str:
    """Cores without needless zeros: 2000 → `2`, 500 → `0.5`; what parse_cpus returned is read back the same.

    Raises:  ValueError: negative.
    """
    if cpu_millis < 0:
        raise ValueError(f"a number of CPUs is never negative: {cpu_millis}")
    whole, rest = divmod(cpu_millis, 1000)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".")


def _exact(n_bytes: int, gap: str) -> str:
    """`n_bytes`, a multiple of 1 MiB (0 too), in the largest unit without a remainder."""
    unit, size = next(((u, s) for u, s in _UNITS.items() if n_bytes and n_bytes % s == 0), ("MiB", MIB))
    return f"{n_bytes // size}{gap}{unit}"


def _tenths(n_bytes: int, unit_bytes: int) -> int:
    return (n_bytes * 10 + unit_bytes // 2) // unit_bytes
