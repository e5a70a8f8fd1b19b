"""`nvidia-smi -L`: index, name and UUID of each card and of its MIG slices. Nothing in it is written by a user."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from webapp.domain.gpu import MigSlice
from webapp.gpus.parse import cells
from webapp.gpus.parse.facts import CardFacts

_GPU = re.compile(r"GPU ([0-9]{1,6}): (.*) \(UUID: ([^()]*)\)")
_MIG = re.compile(r"MIG (\S+) +Device +([0-9]{1,6}): \(UUID: ([^()]*)\)")
_OLD_MIG_UUID = re.compile(r"MIG-GPU-.*/([0-9]{1,3})/([0-9]{1,3})")     # its own GPU and compute instance


@dataclass(frozen=True, slots=True)
class Listing:
    cards: tuple[CardFacts, ...]
    stray: tuple[str, ...]          # other lines: failures of single cards, messages, cut ends


def read_listing(output: str) -> Listing:
    """Cards in the order of the list. Slices belong to the card above; after another line to none."""
    cards: list[CardFacts] = []
    stray: list[str] = []
    is_below_a_card = False
    for line in filter(None, map(str.strip, output.split("\n"))):
        card, part = _card(line), _slice(line)
        if card:
            cards.append(card)
        elif part and is_below_a_card:
            cards[-1] = replace(cards[-1], mig_slices=(*(cards[-1].mig_slices or ()), part))
        else:
            stray.append(line)
        is_below_a_card = bool(card) or (part is not None and is_below_a_card)
    return Listing(tuple(cards), tuple(stray))


def _card(line: str) -> CardFacts | None:
    match = _GPU.fullmatch(line)
    if not match:
        return None
    return CardFacts(index=int(match[1]), name=cells.text(match[2]), uuid=cells.text(match[3]), mig_slices=())


def _slice(line: str) -> MigSlice | None:
    match = _MIG.fullmatch(line)
    if not match:
        return None
    instances = _OLD_MIG_UUID.fullmatch(match[3])
    return MigSlice(
        index=int(match[2]), profile=cells.text(match[1]), uuid=cells.text(match[3]),
        gpu_instance_id=int(instances[1]) if instances else None,
        compute_instance_id=int(instances[2]) if instances else None)
