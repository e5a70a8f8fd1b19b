"""The driver rule: which CUDA of an image runs on which driver of a host.

From CUDA 11 on, every toolkit of a major version runs on the first driver of that major version (NVIDIA, "CUDA
Compatibility", minor version compatibility), and a newer driver runs everything older. Versions are compared as tuples
of numbers: 418.87.01 is no decimal number (promises.md 15). Linux drivers; NVIDIA's forward-compatibility package
inside an image is not counted on, because it works with data-centre cards only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from webapp.domain.reasons import Reason, Wording
from webapp.errors import N_

# CUDA major version → the first Linux driver that runs all of it (release notes of the toolkit, table "minimum required
# driver version for CUDA minor version compatibility": 450.80.02, 525.60.13, 580.65.06).
LEAST_DRIVER: dict[int, tuple[int, ...]] = {11: (450, 80), 12: (525, 60), 13: (580, 65)}
# The driver that CUDA 11.8 came with. From 450.80 to here it runs by minor-version compatibility.
_OWN_DRIVER: dict[tuple[int, int], tuple[int, ...]] = {(11, 8): (520, 61)}

_VERSION = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,5}){0,3}")


class Compatibility(StrEnum):
    OK = "ok"
    MINOR_VERSION = "minor_version"     # runs; features that need its own driver do not (PTX compiled at run time)
    TOO_OLD = "too_old"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is None for OK only: for UNKNOWN it says what is not known, which is no promise that it runs."""

    compatibility: Compatibility
    reason: Reason | None = None


def parse_version(text: str | None) -> tuple[int, ...] | None:
    """`570.86.15` → (570, 86, 15); None for everything else, such as `N/A` and `Not Found`."""
    if text is None or not _VERSION.fullmatch(text.strip()):
        return None
    return tuple(int(part) for part in text.strip().split("."))


def judge(cuda_version: str | None, driver_version: str | None) -> Verdict:
    """Whether an image with this CUDA runs on this driver.

    Args:  cuda_version: of the image, `12.8` or `12.8.1`; None = not known.   driver_version: of the host.
    """
    cuda, driver = parse_version(cuda_version), parse_version(driver_version)
    if cuda is None or driver is None or len(driver) < 2:
        return _verdict(Compatibility.UNKNOWN, cuda_version, driver_version)
    return _verdict(_compare(cuda, driver), cuda_version, driver_version, _least(cuda))


def refusal(cuda_version: str | None, driver_version: str | None) -> Reason | None:
    """Why this image cannot start on this host: only when it is known. `judge` also tells what is not known."""
    verdict = judge(cuda_version, driver_version)
    return verdict.reason if verdict.compatibility is Compatibility.TOO_OLD else None


def _compare(cuda: tuple[int, ...], driver: tuple[int, ...]) -> Compatibility:
    least = _least(cuda)
    if least is None:
        return Compatibility.UNKNOWN
    if driver < least:
        # Each toolkit before 11 has a driver of its own; they are all older than 450.80 and not worth a table.
        return Compatibility.TOO_OLD if cuda[0] in LEAST_DRIVER else Compatibility.UNKNOWN
    own = _OWN_DRIVER.get((cuda[0], cuda[1])) if len(cuda) > 1 else None
    return Compatibility.MINOR_VERSION if own and driver < own else Compatibility.OK


def _least(cuda: tuple[int, ...]) -> tuple[int, ...] | None:
    """None = a major version that came after this table."""
    return LEAST_DRIVER.get(max(cuda[0], min(LEAST_DRIVER)))


def _verdict(
    compatibility: Compatibility, cuda: str | None, driver: str | None, least: tuple[int, ...] | None = None
) -> Verdict:
    if compatibility is Compatibility.OK:
        return Verdict(compatibility)
    facts = {"cuda": cuda or "?", "driver": driver or "?", "least": ".".join(map(str, least or ())) or "?"}
    return Verdict(compatibility, Reason(f"cuda_{compatibility}", facts))


WORDINGS: dict[str, Wording] = {
    "cuda_too_old": Wording(
        N_("The image has CUDA %(cuda)s, which needs NVIDIA driver %(least)s or newer; this host has %(driver)s."),
        N_("Choose an image with an older CUDA, or ask an administrator to upgrade the driver."),
    ),
    "cuda_minor_version": Wording(
        N_(
            "The image has CUDA %(cuda)s and this host an older driver than it came with, %(driver)s. It runs; "
            "what is compiled while it runs may not."
        ),
        N_("Nothing to do unless a program complains; then ask an administrator to upgrade the driver."),
    ),
    "cuda_unknown": Wording(
        N_("Whether the image (CUDA %(cuda)s) runs on this host (NVIDIA driver %(driver)s) is not known."),
        N_("Try it, or ask an administrator to say which CUDA is in the image."),
    ),
}
