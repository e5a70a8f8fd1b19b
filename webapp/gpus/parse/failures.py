"""What nvidia-smi prints when it cannot answer: for the whole host, or for one card in the middle of the others.

Most of these texts come on stdout, and exit codes differ between versions (promises.md 12, 13): text first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Text → code of domain/gpu.py; the first that is found. A card's own message stands before "No devices were found".
_TEXTS = tuple((re.compile(pattern, re.IGNORECASE), code) for pattern, code in (
    (r"unable to determine the device handle for .{1,100}: gpu is lost", "gpu_lost"),
    (r"unable to determine the device handle for ", "device_handle_unknown_error"),
    (r"driver/library version mismatch", "driver_library_version_mismatch"),
    (r"couldn't communicate with the nvidia driver", "driver_not_loaded"),
    (r"failed to initialize nvml: driver not loaded", "driver_not_loaded"),
    (r"(?:couldn't|could not) find (?:the )?libnvidia-ml", "nvml_library_not_found"),
    (r"failed to initialize nvml: .{0,100}library not found", "nvml_library_not_found"),
    (r"failed to initialize nvml: insufficient permissions", "insufficient_permissions"),
    (r"gpu access blocked by the operating system", "blocked_by_os"),
    (r"failed to initialize nvml: ", "nvml_unknown_error"),
    (r"no (?:devices|supported gpus) were found", "no_devices"),
    (r"is not a valid field to query", "invalid_query_field"),
    (r"^error: option |invalid combination of input arguments|run 'nvidia-smi -h' for help", "usage_error"),
))
_ANY = re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _ in _TEXTS), re.IGNORECASE)
# nvidia-smi(1), "Return value"; 9 and 12 seen with the real 550.163 on a machine without a driver.
_EXIT_CODES = {2: "usage_error", 4: "insufficient_permissions", 9: "driver_not_loaded", 12: "nvml_library_not_found",
               15: "gpu_lost", 127: "smi_missing"}
# `GPU 0000:05:00.0`, `GPU0000:CB:00.0`, `GPU0: 0000:01:00.0`, `gpu 0002:00:00.0`
_DEVICE = re.compile(
    r"unable to determine the device handle for gpu ?(?:(?P<index>[0-9]{1,4}): ?)?"
    r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]): (?P<detail>.{1,300})", re.IGNORECASE)
_FIELD = re.compile(r'field "([^"\n]{1,200})" is not a valid field to query', re.IGNORECASE)
_LINE = re.compile(r"^[^\n]*\S[^\n]*$", re.MULTILINE)
MOST_DETAIL = 300


@dataclass(frozen=True, slots=True)
class DeviceFailure:
    """One card that the driver could not reach."""

    pci_bus_id: str
    detail: str                 # "GPU is lost.  Reboot the system to recover this GPU"
    index: int | None = None

    @property
    def denied(self) -> bool:
        return "permission" in self.detail.lower()


def classify(output: str, exit_code: int | None = None) -> str | None:
    """Code of what went wrong; None = nothing that is known. Only for output in which no card could be read."""
    for pattern, code in _TEXTS:
        if pattern.search(output):
            return code
    return _EXIT_CODES.get(exit_code) if exit_code is not None else None


def device_failures(lines: Iterable[str]) -> tuple[DeviceFailure, ...]:
    """The cards that lines of a list or of a CSV say to be out of reach, each once."""
    found: dict[str, DeviceFailure] = {}
    for match in filter(None, map(_DEVICE.search, lines)):
        index = int(match["index"]) if match["index"] else None
        found.setdefault(match["pci"].upper(), DeviceFailure(match["pci"], match["detail"].strip(), index))
    return tuple(found.values())


def is_failure(line: str) -> bool:
    return _ANY.search(line) is not None


def invalid_field(output: str) -> str | None:
    """The field that this nvidia-smi does not know: then the whole query fails, on stdout with exit code 2."""
    match = _FIELD.search(output)
    return match[1] if match else None


def first_line(output: str) -> str:
    """For people: the first line that says something, without what a terminal would act on."""
    match = _LINE.search(output)
    return "".join(c for c in match[0].strip() if c.isprintable())[:MOST_DETAIL] if match else ""
