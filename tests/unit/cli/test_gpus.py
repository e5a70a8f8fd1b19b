"""berth gpu list, and what the doctor says about the cards of a host."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from unit.cli.conftest import Berth

from webapp.cli import checks
from webapp.domain.actor import Actor
from webapp.domain.gpu import Condition, Gpu, Inventory, InventoryTrouble
from webapp.domain.reasons import Reason
from webapp.errors import EngineUnreachable
from webapp.key_files import seal_of
from webapp.services import hosts, images, inventory, observations, workspaces
from webapp.services.inventory import Look
from webapp.services.orders import LaunchRequest
from webapp.settings import house_rules, load_settings
from webapp.store.reads import people as reads
from webapp.store.session import Store

NOW = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)
MODEL = "NVIDIA A100-SXM4-80GB"
SEEN: Mapping[str, Any] = {"driver_version": "580.105.08", "cuda_version": "13.0"}

Saw = Callable[..., None]


def uuid(number: int) -> str:
    return f"GPU-51e1a7ed-0000-0000-0000-{number:012d}"


def cards(n: int) -> list[Gpu]:
    return [Gpu(uuid(i), i, MODEL, memory_total_bytes=81920 * 2**20) for i in range(n)]


@pytest.fixture
def saw(house: Berth) -> Saw:
    """saw(card, …, trouble=…) = what an agent read on the host gpu1 a moment ago."""
    store = Store(load_settings().database_url, seal=seal_of(load_settings()))
    with store.write() as session:
        host = hosts.ensure_local(session, name="gpu1", engine_url="unix:///run/docker.sock", now=NOW)
        epoch = observations.next_epoch(session, now=NOW)

    def record(*gpus: Gpu, trouble: InventoryTrouble | None = None, busy: Mapping[str, Reason] | None = None,
               simulated: bool = False) -> None:
        look = Look(Inventory(gpus, trouble=trouble, **({} if trouble else SEEN)), busy or {}, simulated)
        with store.write() as session:
            assert inventory.record(session, host.id, look, epoch=epoch, now=NOW)
        store.close()

    store.close()
    return record


@pytest.fixture
def held() -> Callable[..., None]:
    """held(uuid, …) = alice has launched on these."""
    def launch(*uuids: str) -> None:
        settings = load_settings()
        store = Store(settings.database_url, seal=seal_of(settings))
        with store.write() as session:
            image = images.add(session, Actor.house(), title="Torch", reference="example/torch:1", base=None,
                               cuda_version=None, has_jupyter=True, now=NOW)
            alice = Actor(next(row.id for row in reads.members(session) if row.username == "alice"), is_admin=False)
            request = LaunchRequest(name="run-1", image_id=image.id, gpu_uuids=uuids)
            workspaces.launch(session, alice, request, house=house_rules(settings), now=NOW)
        store.close()
    return launch


def listed(berth: Berth) -> list[dict[str, Any]]:
    done = berth("gpu", "list", "--json")
    assert done.code == 0
    return list(json.loads(done.out))


def test_card_has_all_that_is_known_of_it(house: Berth, saw: Saw) -> None:
    saw(*cards(1), simulated=True)
    assert listed(house) == [{
        "host": "gpu1", "index": 0, "model": MODEL, "uuid": uuid(0), "memory_bytes": 81920 * 2**20, "condition": "ok",
        "why_not_offered": None, "holder": None, "held_since": None, "simulated": True}]


def test_card_that_is_held_names_who_and_since_when(house: Berth, saw: Saw, held: Callable[..., None]) -> None:
    saw(*cards(3))
    held(uuid(1))
    rows = [(row["index"], row["holder"], row["held_since"]) for row in listed(house)]
    assert rows == [(0, None, None), (1, "alice", NOW.isoformat()), (2, None, None)]


def test_cards_are_in_the_order_of_their_numbers(house: Berth, saw: Saw) -> None:
    saw(*reversed(cards(12)))
    assert [row["index"] for row in listed(house)] == list(range(12))


def test_card_that_is_not_offered_says_why(house: Berth, saw: Saw) -> None:
    lost, busy = cards(2)
    lost = Gpu(lost.uuid, 0, MODEL, condition=Condition.LOST, fault=Reason("gpu_vanished", {"gpu": lost.label}))
    saw(lost, busy, busy={uuid(1): Reason("gpu_busy", {"gpu": busy.label, "who": "python"})})
    first, second = listed(house)
    assert first["condition"] == "lost" and "no longer listed by the driver" in first["why_not_offered"]
    assert second["condition"] == "ok" and "in use by python" in second["why_not_offered"]


def test_what_a_driver_does_not_tell_is_null_and_never_zero(house: Berth, saw: Saw) -> None:
    saw(Gpu(uuid(0), None, None))
    row, = listed(house)
    assert row["memory_bytes"] is None and row["index"] is None
    assert "—" in house("gpu", "list").out


def test_table_for_people_has_a_readable_size_and_says_simulated(house: Berth, saw: Saw) -> None:
    saw(*cards(1), simulated=True)
    out = house("gpu", "list").out
    assert "80 GiB" in out and "simulated" in out and uuid(0) in out


def test_no_card_points_to_the_doctor(house: Berth) -> None:
    done = house("gpu", "list")
    assert done.code == 0 and "berth doctor" in done.out
    assert listed(house) == []


@pytest.fixture
def doctor(house: Berth, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """doctor() = its checks about cards."""
    def unreachable(*_: object, **__: object) -> None:
        raise EngineUnreachable(host="gpu1", detail="connection refused")

    monkeypatch.setattr(checks, "open_engine", unreachable)
    return lambda: [check for check in json.loads(house("doctor", "--json").out) if check["name"] in ("gpu", "gpus")]


def test_doctor_counts_cards_and_says_simulated(
    doctor: Callable[[], list[dict[str, Any]]], saw: Saw, held: Callable[..., None],
) -> None:
    saw(*cards(4), simulated=True)
    held(uuid(0), uuid(1))
    check, = doctor()
    assert check["ok"] and check["seen"] == "4 simulated on gpu1, 2 free, driver 580.105.08"


@pytest.mark.parametrize("code", checks.NO_GPU)
def test_host_without_a_driver_or_a_card_is_no_fault(
    doctor: Callable[[], list[dict[str, Any]]], saw: Saw, code: str,
) -> None:
    saw(trouble=InventoryTrouble(code, {"host": "gpu1"}))
    check, = doctor()
    assert check["ok"] and not check["fix"] and "gpu1" in check["seen"]


def test_driver_that_is_gone_where_cards_were_is_a_fault(
    doctor: Callable[[], list[dict[str, Any]]], saw: Saw,
) -> None:
    saw(*cards(2))
    saw(trouble=InventoryTrouble("driver_not_loaded", {"host": "gpu1"}))
    first, *per_card = doctor()
    assert not first["ok"] and "modprobe nvidia" in first["fix"]
    assert len(per_card) == 2 and all(check["minor"] for check in per_card)


def test_doctor_names_a_trouble_of_the_driver_and_what_to_do(
    doctor: Callable[[], list[dict[str, Any]]], saw: Saw,
) -> None:
    saw(trouble=InventoryTrouble("driver_library_version_mismatch", {"host": "gpu1"}))
    check, = doctor()
    assert not check["ok"] and "upgraded while the old one was running" in check["seen"]
    assert "restart the host" in check["fix"]


def test_doctor_names_a_card_that_is_lost(doctor: Callable[[], list[dict[str, Any]]], saw: Saw) -> None:
    saw(*cards(2))
    saw(*cards(1))
    gpus, card = doctor()
    assert gpus["ok"] and "1 free" in gpus["seen"]
    assert not card["ok"] and card["minor"] and "GPU 1" in card["seen"] and card["fix"]


def test_reason_of_a_newer_agent_is_shown_as_it_is(house: Berth, saw: Saw) -> None:
    saw(*cards(1), busy={uuid(0): Reason("gpu_on_the_moon", {})})
    assert listed(house)[0]["why_not_offered"] == "gpu_on_the_moon"
