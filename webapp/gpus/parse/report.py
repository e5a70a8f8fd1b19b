"""`nvidia-smi -q -x`: everything about each card and its processes.

A reader of our own, because a strict one gives up where we must not: drivers print elements that do not nest
(flutter_server_box#286), process names with bytes that no XML allows (cwltool#1910), messages between the elements, and
an output may be cut. What can be read is read, and each card by itself.

Process names are written by whoever runs the process, and whether every driver escapes them is not known. The text up
to `</process_name>` is taken as it is, and who merges outputs believes this one only where `-L` and CSV, which hold no
such text, say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import unescape

from webapp.domain.gpu import MigSlice, Process
from webapp.gpus.parse import cells
from webapp.gpus.parse.facts import CardFacts, fault_words, first_power, shares_memory, wanted_recovery

_TOKEN = re.compile(
    r"<(?P<close>/?)(?P<tag>[A-Za-z_][\w.-]{0,63})(?P<rest>(?:[\s/][^<>]*)?)>|<[?!][^<>]*>|(?P<text>[^<]+)|<")
_ID = re.compile(r'\bid\s*=\s*"([^"]{1,64})"')
_NAME, _NAME_END = "process_name", "</process_name>"
_GROUPS = {"mig_device": "slices", "process_info": "processes"}     # elements that come many times in a card
_QUOTES = {"&quot;": '"', "&apos;": "'"}
MOST_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Report:
    """`index` of a card is its position here: the driver's own only if all cards are listed (promises.md 24)."""

    driver_version: str | None
    cuda_version: str | None            # as printed: 430.26 prints "Not Found"
    attached_gpus: int | None
    cards: tuple[CardFacts, ...]


@dataclass(slots=True)
class _Element:
    """Leaves by their path inside a card, a slice or a process; the first of a name counts."""

    leaves: dict[str, str] = field(default_factory=dict)
    slices: list[_Element] = field(default_factory=list)
    processes: list[_Element] = field(default_factory=list)

    def get(self, path: str) -> str | None:
        return self.leaves.get(path)


def read_report(output: str) -> Report:
    """Everything that can be read of the output; no cards when there is none in it."""
    log, cards = _Scanner().scan(output)
    return Report(
        driver_version=cells.text(log.get("driver_version")),
        cuda_version=log.get("cuda_version"),
        attached_gpus=cells.whole(log.get("attached_gpus"), most=4096),
        cards=tuple(_card(card, position) for position, card in enumerate(cards)))


class _Scanner:
    """Tokens → elements. `path` holds the open tags since the innermost card, slice or process began."""

    def __init__(self) -> None:
        self.log = _Element()
        self.cards: list[_Element] = []
        self.open: list[tuple[str, _Element]] = [("", self.log)]    # tags with the element that they belong to
        self.text: list[str] = []

    def scan(self, output: str) -> tuple[_Element, list[_Element]]:
        for kind, word in _tokens(output):
            if kind == "text":
                self.text.append(word)
                continue
            self._keep_text()
            if kind == "open":
                self._begin(word)
            else:
                self._end(word)
        self._keep_text()
        return self.log, self.cards

    def _begin(self, tag: str) -> None:
        if tag == "gpu":                    # whatever was not closed before it
            self.cards.append(_Element())
            self.open = [("", self.log), (tag, self.cards[-1])]
        elif tag in _GROUPS and self._card is not None:
            group: list[_Element] = getattr(self._card, _GROUPS[tag])
            group.append(_Element())
            self.open = [*self.open[:2], (tag, group[-1])]
        elif len(self.open) < MOST_DEPTH:
            self.open.append((tag, self.open[-1][1]))
            if tag in ("mig_devices", "processes"):
                self._element.leaves.setdefault(self._path, "")

    def _end(self, tag: str) -> None:
        for place in range(len(self.open) - 1, 0, -1):
            if self.open[place][0] == tag:
                del self.open[place:]
                return

    def _keep_text(self) -> None:
        text = "".join(self.text).strip()
        self.text.clear()
        if text and not self._element.leaves.get(self._path):
            self._element.leaves[self._path] = text

    @property
    def _card(self) -> _Element | None:
        return self.open[1][1] if len(self.open) > 1 and self.open[1][0] == "gpu" else None

    @property
    def _element(self) -> _Element:
        return self.open[-1][1]

    @property
    def _path(self) -> str:
        tags = [tag for tag, element in self.open if element is self._element]
        return "/".join(tags[1:] if self._element is not self.log else tags[-1:])


def _tokens(output: str) -> Iterator[tuple[str, str]]:
    """("open" | "close", tag) and ("text", words)."""
    at, names_end = 0, len(output)
    while at < len(output):
        match = _TOKEN.match(output, at)
        if not match:
            return
        at = match.end()
        tag = match["tag"]
        if tag is None:
            yield "text", unescape(match["text"] or "", _QUOTES)
        elif match["close"]:
            yield "close", tag
        else:
            yield "open", tag
            if match["rest"].endswith("/"):
                yield "close", tag
            elif tag == _NAME and at < names_end:
                end = output.find(_NAME_END, at)
                if end < 0:
                    names_end = at              # looked for once: the output may be long
                else:
                    yield "text", unescape(output[at:end], _QUOTES)
                    at = end
            elif tag == "gpu" and (pci := _ID.search(match["rest"])):
                yield from (("open", "@id"), ("text", pci[1]), ("close", "@id"))


def _card(card: _Element, position: int) -> CardFacts:
    get = card.get
    draw, average, instant = _power(card)
    lost, reset = fault_words(card.leaves.values())
    mode = cells.mig_mode(get("mig_mode/current_mig"))
    total = get("fb_memory_usage/total")
    return CardFacts(
        index=position, uuid=cells.text(get("uuid")), name=cells.text(get("product_name")),
        pci_bus_id=cells.text(get("pci/pci_bus_id")) or cells.text(get("@id")),
        minor_number=cells.whole(get("minor_number")),
        memory_total_bytes=cells.memory_bytes(total),
        memory_used_bytes=cells.memory_bytes(get("fb_memory_usage/used")),
        utilization_percent=cells.percent(get("utilization/gpu_util")),
        temperature_celsius=cells.celsius(get("temperature/gpu_temp")),
        power_watts=first_power(draw, average, instant), power_average_watts=average, power_instant_watts=instant,
        fan_percent=cells.percent(get("fan_speed"), most=1000),
        mig_mode=mode, mig_slices=_slices(card), compute_mode=cells.text(get("compute_mode")),
        processes=_processes(card), shares_host_memory=shares_memory(total, mode), lost=lost,
        reset=reset or wanted_recovery(get("gpu_recovery_action"), get("gpu_reset_status/reset_required")),
        unread=cells.word(total) == "unknown error" or None)


def _power(card: _Element) -> tuple[float | None, float | None, float | None]:
    """The block of the GPU itself: power_readings until driver 530, gpu_power_readings since; never the module's."""
    block = next((block for block in ("gpu_power_readings", "power_readings")
                  if any(path.startswith(f"{block}/") for path in card.leaves)), "")
    draw, average, instant = (
        cells.watts(card.get(f"{block}/{kind}power_draw")) for kind in ("", "average_", "instant_"))
    return draw, average, instant


def _slices(card: _Element) -> tuple[MigSlice, ...] | None:
    if card.get("mig_devices") is None and not card.slices:
        return None
    return tuple(filter(None, map(_slice, card.slices)))


def _slice(part: _Element) -> MigSlice | None:
    index = cells.whole(part.get("index"))
    if index is None:
        return None
    return MigSlice(
        index=index, uuid=cells.text(part.get("uuid")),
        gpu_instance_id=cells.whole(part.get("gpu_instance_id")),
        compute_instance_id=cells.whole(part.get("compute_instance_id")),
        memory_total_bytes=cells.memory_bytes(part.get("fb_memory_usage/total")))


def _processes(card: _Element) -> tuple[Process, ...] | None:
    said = card.get("processes")
    if not card.processes and (said is None or cells.word(said) in cells.NOT_REPORTED):
        return None
    return tuple(filter(None, map(_process, card.processes)))


def _process(process: _Element) -> Process | None:
    pid = cells.pid(process.get("pid"))
    if pid is None:
        return None
    return Process(
        pid=pid, name=cells.name(process.get("process_name")), kind=cells.text(process.get("type")),
        memory_used_bytes=cells.memory_bytes(process.get("used_memory")))
