"""`nvidia-smi topo -m`: how each pair of cards is connected. Tabs or blanks between the cells, ANSI codes or not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from webapp.domain.gpu import Link, LinkKind

_ANSI = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_DEVICE = re.compile(r"(?:GPU|NIC|mlx)[0-9]+(?:_\w+)*")
_GPU = re.compile(r"GPU([0-9]{1,4})")
_NVLINK = re.compile(r"NV([0-9]{1,3})")
_OLD_WORDS = {"SOC": LinkKind.SYS, "PSB": LinkKind.PIX}     # drivers before 387; boards with two GPUs


@dataclass(frozen=True, slots=True)
class TopologyTable:
    rows: tuple[str, ...]                           # GPU0 …, NIC0 …, in the order of the table
    links: Mapping[tuple[int, int], Link]           # indexes of two cards, the smaller first

    @property
    def indexes(self) -> frozenset[int]:
        return frozenset(int(match[1]) for match in map(_GPU.fullmatch, self.rows) if match)


def read_topology(output: str) -> TopologyTable:
    """Cells of the columns that the header names; a shorter row, or a word that is not known, says nothing."""
    columns: list[str] = []
    rows: list[str] = []
    links: dict[tuple[int, int], Link] = {}
    for line in _ANSI.sub("", output).split("\n"):
        words = line.split()
        if not words or not _DEVICE.fullmatch(words[0]):
            if rows:
                break                               # the legend names devices as well
        elif not columns:
            columns = _leading_devices(words)
        else:
            rows.append(words[0])
            _add_links(links, words, columns)
    return TopologyTable(tuple(rows), links)


def _leading_devices(words: list[str]) -> list[str]:
    """The header's devices; `CPU Affinity` and the like come after them."""
    end = next((place for place, word in enumerate(words) if not _DEVICE.fullmatch(word)), len(words))
    return words[:end]


def _add_links(links: dict[tuple[int, int], Link], words: list[str], columns: list[str]) -> None:
    one = _GPU.fullmatch(words[0])
    if not one or len(words) <= len(columns):
        return
    for column, cell in zip(columns, words[1:], strict=False):
        other, link = _GPU.fullmatch(column), _link(cell)
        if not other or not link or other[1] == one[1]:
            continue
        first, second = sorted((int(one[1]), int(other[1])))
        if first != second:
            known = links.get((first, second), link)
            links[first, second] = min(known, link, key=lambda each: each.closeness)


def _link(cell: str) -> Link | None:
    nvlinks = _NVLINK.fullmatch(cell)
    if nvlinks:
        return Link(LinkKind.NVLINK, int(nvlinks[1]))
    kind = _OLD_WORDS.get(cell) or next((kind for kind in LinkKind if kind == cell), None)
    return Link(kind) if kind and kind is not LinkKind.NVLINK else None
