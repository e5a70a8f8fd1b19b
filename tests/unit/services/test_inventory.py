"""What one look at a host's cards leaves in the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from webapp.domain.gpu import Condition, Gpu, Inventory, InventoryTrouble, MigMode, MigSlice
from webapp.domain.reasons import Reason
from webapp.services import inventory
from webapp.services.inventory import Change, Look
from webapp.store.session import Store
from webapp.store.tables import Gpu as Row

ONE, TWO = "GPU-11111111-aaaa-bbbb-cccc-000000000001", "GPU-22222222-aaaa-bbbb-cccc-000000000002"
PART = "MIG-11111111-aaaa-bbbb-cccc-00000000000a"
GONE = InventoryTrouble("card_unreachable", {"host": "gpu1", "detail": "GPU is lost"})

Record = Callable[..., Sequence[Change]]


def card(uuid: str | None = ONE, index: int = 0, **changes: Any) -> Gpu:
    return Gpu(uuid, index, "NVIDIA A100", **{"pci_bus_id": f"0000000{index}:07:00.0", **changes})


def divided(*parts: MigSlice) -> Gpu:
    return card(mig_mode=MigMode.ENABLED, mig_slices=parts)


@pytest.fixture
def record(store: Store, cast: Any, now: datetime) -> Record:
    """record(card, …) = what changed by a look that shows these cards."""
    def run(
        *cards: Gpu, trouble: InventoryTrouble | None = None, busy: dict[str, Reason] | None = None, seconds: int = 0,
    ) -> Sequence[Change]:
        look = Look(Inventory(cards, trouble=trouble), busy or {}, simulated=False)
        with store.write() as session:
            done = inventory.record(
                session, cast.host_id, look, epoch=cast.epoch, now=now + timedelta(seconds=seconds))
        assert done is not None
        return done.changes
    return run


@pytest.fixture
def rows(store: Store) -> Callable[[], dict[str, Row]]:
    def read() -> dict[str, Row]:
        with store.read() as session:
            return {row.key: row for row in session.scalars(select(Row))}
    return read


Rows = Callable[[], dict[str, Row]]


def test_it_says_what_changed_and_nothing_else(record: Record) -> None:
    assert list(record(card(), card(TWO, 1))) == [Change(ONE, None, Condition.OK), Change(TWO, None, Condition.OK)]
    assert list(record(card(), card(TWO, 1))) == []
    assert list(record(card(TWO, 1))) == [Change(ONE, Condition.OK, Condition.LOST, "gpu_vanished")]
    assert list(record(card(), card(TWO, 1))) == [Change(ONE, Condition.LOST, Condition.OK)]


def test_times_are_of_the_last_sight_and_of_the_last_change(record: Record, rows: Rows, now: datetime) -> None:
    record(card())
    record(card(), seconds=15)
    record(seconds=30)
    record(seconds=45)
    row = rows()[ONE]
    assert (row.seen_at - now, row.condition_at - now) == (timedelta(seconds=15), timedelta(seconds=30))


def test_card_that_is_busy_is_well_and_refused(record: Record, rows: Rows) -> None:
    busy = Reason("gpu_busy", {"gpu": "GPU 0", "who": "llm"})
    record(card(), busy={ONE: busy})
    assert (rows()[ONE].condition, rows()[ONE].refusal) == ("ok", busy.as_json())
    record(card())
    assert rows()[ONE].refusal is None


def test_what_a_look_leaves_out_stays_as_it_was_known(record: Record, rows: Rows) -> None:
    record(card(memory_total_bytes=7))
    record(Gpu(ONE, None, None, condition=Condition.FAULTY, fault=Reason("gpu_silent", {"gpu": "GPU 0"})))
    row = rows()[ONE]
    assert (row.model, row.memory_bytes, row.index, row.pci_bus_id) == ("NVIDIA A100", 7, 0, "00000000:07:00.0")


def test_card_without_a_name_is_forgotten_when_it_has_one(record: Record, rows: Rows) -> None:
    record(card(None))
    assert list(rows()) == ["?00000000:07:00.0"]
    record(card())
    assert list(rows()) == [ONE]


def test_card_that_the_driver_names_by_its_place_says_what_the_driver_says(record: Record, rows: Rows) -> None:
    record(card(), card(TWO, 1))
    lost = Reason("gpu_lost", {"gpu": "GPU (00000000:07:00.0)", "detail": "GPU is lost."})
    record(card(TWO, 1), Gpu(None, None, None, "00000000:07:00.0", condition=Condition.LOST, fault=lost), trouble=GONE)
    facts = {"gpu": "GPU 0 (NVIDIA A100)", "detail": "GPU is lost."}
    assert rows()[ONE].refusal == {"code": "gpu_lost", "facts": facts}
    assert len(rows()) == 2 and rows()[TWO].refusal is None


def test_slice_is_named_with_its_profile_also_while_its_card_is_not_read(record: Record, rows: Rows) -> None:
    record(divided(MigSlice(0, PART, "3g.40gb")))
    record(trouble=InventoryTrouble("smi_hangs", {"host": "gpu1", "seconds": 20}))
    row = rows()[PART]
    assert (row.model, row.condition, row.refusal and row.refusal["code"]) == (
        "NVIDIA A100 MIG 3g.40gb", "faulty", "smi_hangs")


def test_slice_that_a_look_did_not_come_to_is_refused_and_kept(record: Record, rows: Rows) -> None:
    record(divided(MigSlice(0, PART, "3g.40gb")))
    changes = record(divided(), trouble=GONE)
    assert list(changes) == [Change(PART, Condition.OK, Condition.FAULTY, "card_unreachable")]
    record(divided(MigSlice(0, PART, "3g.40gb")))
    assert (rows()[PART].condition, rows()[PART].refusal) == ("ok", None)


def test_slice_that_is_ill_already_stays_as_it_is_when_a_look_does_not_come_to_it(record: Record, rows: Rows) -> None:
    record(divided(MigSlice(0, PART, "3g.40gb")))
    record(divided(), trouble=GONE)
    before = rows()[PART].refusal
    other = InventoryTrouble("smi_hangs", {"host": "gpu1", "seconds": 20})
    assert list(record(divided(), trouble=other)) == []
    assert rows()[PART].refusal == before


def test_slice_that_is_not_there_any_more_is_forgotten(record: Record, rows: Rows) -> None:
    record(divided(MigSlice(0, PART, "3g.40gb")))
    assert list(record(divided())) == [Change(PART, Condition.OK, None)]
    assert list(rows()) == [ONE]


def test_busy_slice_is_refused_and_its_neighbour_is_not(record: Record, rows: Rows) -> None:
    other = PART[:-1] + "b"
    busy = Reason("gpu_busy", {"gpu": "GPU 0", "who": "llm"})
    record(divided(MigSlice(0, PART, "3g.40gb"), MigSlice(1, other, "3g.40gb")), busy={PART: busy})
    assert (rows()[PART].refusal, rows()[other].refusal) == (busy.as_json(), None)


def test_agent_that_was_replaced_writes_nothing(store: Store, cast: Any, now: datetime, rows: Rows) -> None:
    with store.write() as session:
        look = Look(Inventory((card(),)), {}, simulated=False)
        assert inventory.record(session, cast.host_id, look, epoch=cast.epoch - 1, now=now) is None
    assert rows() == {}
