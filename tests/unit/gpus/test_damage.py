"""Damaged outputs: nothing raises, nothing is invented, and figures keep their limits."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.domain.sizes import MIB
from webapp.gpus.merge import merge
from webapp.gpus.parse.cells import MOST_PID, decode
from webapp.gpus.parse.facts import CardFacts
from webapp.gpus.parse.failures import classify, device_failures, first_line, invalid_field
from webapp.gpus.parse.listing import read_listing
from webapp.gpus.parse.report import read_report
from webapp.gpus.parse.rows import read_app_rows, read_gpu_rows
from webapp.gpus.parse.topology import read_topology
from webapp.gpus.query import CARD, choose, read_fields

from .recordings import KINDS, OWN, REAL, Recording, recordings

FIELDS = choose(CARD, [name for names in CARD for name in names])
ALL = recordings(OWN, *KINDS) + recordings(REAL, *KINDS)
PIECES = [
    *("GPU 0: A (UUID: GPU-", "<gpu", "</gpu>", "<process_name>", "</process_name>", "<pid>", "[N/A]", ", ", "\n"),
    *("\t", "\r", "\x00", "\x1b[4m", "GPU0", " X ", "NV18", "<mig_device>", "<index>0", "&lt;", "9" * 30),
    *("é", "\udc80"),
    "Unable to determine the device handle for GPU 0000:21:00.0: GPU is lost",
    'Field "x" is not a valid field to query.',
]


def read_everything(output: str) -> None:
    """All parsers on one text, and what is made of them; limits are checked."""
    listing, rows, report = read_listing(output), read_gpu_rows(output, FIELDS), read_report(output)
    table, apps = read_topology(output), read_app_rows(output)
    for cards in (listing.cards, rows.cards, report.cards, read_gpu_rows(output).cards):
        for card in cards:
            check(card)
    assert all(1 <= app.process.pid <= MOST_PID for app in apps.apps)
    classify(output, 255)
    device_failures(output.split("\n"))
    invalid_field(output)
    read_fields(output)
    assert len(first_line(output)) <= 300
    seen = merge(listing, rows, report, table, trouble=None)
    assert all(gpu.claimable == () or gpu.fault is None for gpu in seen.gpus)


def check(card: CardFacts) -> None:
    assert card.utilization_percent is None or 0 <= card.utilization_percent <= 100
    for size in (card.memory_total_bytes, card.memory_used_bytes):
        assert size is None or size >= 0
    for watts in (card.power_watts, card.power_average_watts, card.power_instant_watts):
        assert watts is None or 0 <= watts < float("inf")
    for process in card.processes or ():
        assert 1 <= process.pid <= MOST_PID


def cut(output: bytes, chance: random.Random) -> bytes:
    return output[:chance.randrange(len(output))]


def without_middle(output: bytes, chance: random.Random) -> bytes:
    first, last = sorted(chance.choices(range(len(output)), k=2))
    return output[:first] + output[last:]


def flipped(output: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(output)
    for _ in range(chance.choice((1, 3, 100))):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    return bytes(damaged)


def damage(output: bytes, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(rounds):
        how = (cut, without_middle, flipped)[(number + seed) % 3]
        read_everything(decode(how(output, chance)))


def small(recording: Recording) -> bool:
    return len(recording.output) < 12_000


@pytest.mark.parametrize("recording", [pytest.param(one, id=f"{one.path.parent.name}-{one.path.stem}") for one in ALL])
def test_damaged_recordings_raise_nothing(recording: Recording) -> None:
    damage(recording.output[:40_000], 12 if small(recording) else 1, seed=len(recording.output))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("recording", [pytest.param(one, id=f"{one.path.parent.name}-{one.path.stem}") for one in ALL])
def test_damaged_recordings_raise_nothing_in_many_rounds(recording: Recording) -> None:
    damage(recording.output, 1500 if small(recording) else 60, seed=1)


@pytest.mark.parametrize("name", ["list/lost-in-the-middle.txt", "csv/lost-in-the-middle.csv", "errors/mismatch.txt",
                                  "apps/commas-and-hidden.csv"])
def test_every_beginning_can_be_read(name: str) -> None:
    output = (OWN / name).read_bytes()
    for end in range(0, len(output), 3):
        read_everything(decode(output[:end]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=30).map("".join))
def test_garbage_raises_nothing(output: str) -> None:
    read_everything(output)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_text_raise_nothing(output: bytes) -> None:
    read_everything(decode(output))


@pytest.mark.soak
@settings(max_examples=5_000, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=60).map("".join))
def test_much_garbage_raises_nothing(output: str) -> None:
    read_everything(output)


@pytest.mark.parametrize("piece", [
    "<process_name>", "<gpu>", "<a>", "<", "<" + "a" * 50, "&", "GPU 0: ", "(UUID: ", "\x1b[", ",", "\n", " ",
    "unable to determine the device handle for ", "failed to initialize nvml: ", '"a" or ', "GPU0 ", "9", "</gpu>", "[",
], ids=repr)
def test_long_repetition_is_read_in_linear_time(piece: str) -> None:
    output = piece * (50_000 // len(piece))
    began = time.process_time()
    read_everything(output)
    assert time.process_time() - began < 3


def test_cut_list_gives_the_cards_before_the_cut() -> None:
    output = (OWN / "list" / "lost-in-the-middle.txt").read_text()
    assert [card.index for card in read_listing(output[:-30]).cards] == [0, 2]


def test_cut_report_gives_what_was_said_before_the_cut() -> None:
    output = (OWN / "xml" / "reset-mig-and-odd-names.xml").read_text()
    cards = read_report(output[:output.index("<fan_speed>")]).cards
    assert [card.name for card in cards] == ["NVIDIA Model A", "NVIDIA Model B"]
    assert cards[0].memory_total_bytes == 40_960 * MIB and cards[1].memory_total_bytes is None
