"""Every recorded output is read as its right answer says: see recordings.py for where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from webapp.domain.gpu import MigSlice
from webapp.domain.sizes import MIB
from webapp.gpus.parse.cells import decode
from webapp.gpus.parse.facts import CardFacts
from webapp.gpus.parse.failures import classify, device_failures
from webapp.gpus.parse.listing import read_listing
from webapp.gpus.parse.report import read_report
from webapp.gpus.parse.rows import read_app_rows, read_gpu_rows
from webapp.gpus.parse.topology import read_topology
from webapp.gpus.query import read_fields

from .recordings import KINDS, OWN, REAL, Recording, params, recordings

ANSWERED_ELSEWHERE = {"module_power_w_not_the_gpu", "name_raw"}     # what a wrong reading would give; a remark


@pytest.mark.parametrize("recording", params("xml"))
def test_report(recording: Recording) -> None:
    report, answer = read_report(decode(recording.output)), recording.answer
    assert report.driver_version == answer["driver_version"]
    assert report.cuda_version == answer["cuda_version"]
    assert report.attached_gpus == answer["attached_gpus"]
    assert_cards(report.cards, answer["gpus"])


@pytest.mark.parametrize("recording", params("csv"))
def test_rows(recording: Recording) -> None:
    answer = recording.answer
    has_header = "noheader" not in recording.path.stem and not answer.get("noheader")
    read = read_gpu_rows(decode(recording.output), None if has_header else answer["columns"])
    assert list(read.header) == answer["columns"]
    assert_cards(read.cards, answer["gpus"])
    assert [failure.pci_bus_id for failure in device_failures(read.stray)] == answer.get("lost_gpus", [])
    assert {card.driver_version for card in read.cards} == {answer["driver_version"]}


@pytest.mark.parametrize("recording", params("list"))
def test_listing(recording: Recording) -> None:
    read = read_listing(decode(recording.output))
    assert_cards(read.cards, recording.answer["gpus"])
    assert [failure.pci_bus_id for failure in device_failures(read.stray)] == recording.answer.get("lost_gpus", [])


@pytest.mark.parametrize("recording", params("topo"))
def test_topology(recording: Recording) -> None:
    table, answer = read_topology(decode(recording.output)), recording.answer
    assert list(table.rows) == answer["rows"]
    cards = [row for row in answer["rows"] if row.startswith("GPU")]
    assert len(table.links) == len(cards) * (len(cards) - 1) // 2
    if "links" in answer:
        read = {f"{one}-{other}": f"{link.kind}{link.nvlinks or ''}" for (one, other), link in table.links.items()}
        assert read == answer["links"]


@pytest.mark.parametrize("recording", params("apps"))
def test_apps(recording: Recording) -> None:
    read = read_app_rows(decode(recording.output))
    assert list(read.header) == recording.answer["columns"]
    assert not read.stray
    assert [{"gpu_uuid": app.gpu_uuid, "pid": app.process.pid, "name": app.process.name,
             "used_memory_mib": mib(app.process.memory_used_bytes)} for app in read.apps] == [
        {key: value for key, value in process.items() if key not in ANSWERED_ELSEWHERE}
        for process in recording.answer["processes"]]


@pytest.mark.parametrize("recording", params("errors"))
def test_failures(recording: Recording) -> None:
    output = decode(recording.output)
    assert classify(output) == recording.answer["error"]
    assert not read_listing(output).cards and not read_report(output).cards and not read_gpu_rows(output).cards
    assert bool(device_failures(output.split("\n"))) == (recording.answer["error"] in (
        "gpu_lost", "device_handle_unknown_error"))


def test_fields_of_the_help() -> None:
    assert read_fields((OWN / "help" / "query-gpu.txt").read_text()) == {
        "timestamp", "count", "name", "gpu_name", "uuid", "gpu_uuid", "memory.total", "index", "clocks.current.sm",
        "clocks.sm", "power.draw.instant"}


@pytest.mark.parametrize("folder", [OWN, REAL], ids=["own", "real"])
def test_no_recording_is_left_out(folder: Any) -> None:
    if not folder.is_dir():
        pytest.skip(f"no recordings of real machines at {folder}")
    there = {path for kind in KINDS for path in (folder / kind).iterdir()}
    assert there == {recording.path for recording in recordings(folder, *KINDS)}


def assert_cards(cards: Sequence[CardFacts], answers: Sequence[dict[str, Any]]) -> None:
    """Every figure that the answers have, and no other card."""
    assert len(cards) == len(answers)
    for card, answer in zip(cards, answers, strict=True):
        wanted = {key: value for key, value in answer.items() if key not in ANSWERED_ELSEWHERE}
        assert {key: _answer(card, key) for key in wanted} == wanted | {"mig_devices": _slices(card, answer)}


def _answer(card: CardFacts, key: str) -> Any:
    answers: dict[str, Any] = {
        "memory_total_mib": mib(card.memory_total_bytes), "memory_used_mib": mib(card.memory_used_bytes),
        "utilization_gpu_percent": card.utilization_percent, "temperature_c": card.temperature_celsius,
        "power_w": card.power_watts, "power_average_w": card.power_average_watts,
        "power_instant_w": card.power_instant_watts, "mig_mode": card.mig_mode,
        "mig_devices": None if card.mig_slices is None else [_slice(part) for part in card.mig_slices],
        "processes": None if card.processes is None else len(card.processes),
        "process_list": [{"pid": process.pid, "type": process.kind, "name": process.name or "",
                          "used_memory_mib": mib(process.memory_used_bytes)} for process in card.processes or ()],
    }
    return answers[key] if key in answers else getattr(card, key)


def _slice(part: MigSlice) -> dict[str, Any]:
    return {"index": part.index, "uuid": part.uuid, "profile": part.profile, "gpu_instance_id": part.gpu_instance_id,
            "compute_instance_id": part.compute_instance_id, "memory_total_mib": mib(part.memory_total_bytes)}


def _slices(card: CardFacts, answer: dict[str, Any]) -> list[dict[str, Any]] | None:
    """What the answers say of the slices, and for the rest what was read: not every output has every figure."""
    said = answer["mig_devices"]
    if said is None or len(said) != len(card.mig_slices or ()):
        return said
    return [_slice(part) | {key: value for key, value in one.items() if key != "memory_used_mib"}
            for part, one in zip(card.mig_slices or (), said, strict=True)]


def mib(n_bytes: int | None) -> float | None:
    return None if n_bytes is None else n_bytes / MIB
