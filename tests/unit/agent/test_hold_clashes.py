"""Two that would have the same when a hold ends: they are named, and nothing is done."""


from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.stage import Stage, check_at_rest
from agent.yesterday import OF_LOOKING, Yesterday, box, decide, end_hold, rows_of
from webapp.domain.container import PublishedPort
from webapp.domain.hold_errors import HoldClash
from webapp.domain.workspace import CONTAINER_PORTS, Service


class TestClash:
    def test_two_that_would_have_one_card_are_named_and_nothing_happens(self, stage: Stage) -> None:
        stage.add_cards(1)
        old = stage.running(name="old", gpus="1")
        yesterday = Yesterday(stage)
        stage.stop(old)
        stage.settle()
        new = stage.running(name="new", gpus="1")
        yesterday.restore()
        decide(stage, old="keep", new="adopt")
        before = rows_of(stage.store)
        with pytest.raises(HoldClash) as caught:
            end_hold(stage)
        assert {caught.value.facts["one"], caught.value.facts["other"]} == {"alice/old", "alice/new"}
        assert "GPU 0" in caught.value.facts["what"]
        after = rows_of(stage.store)
        assert [t.name for t in before if before[t] != after[t] and t.name not in OF_LOOKING] == []
        decide(stage, old="adopt")
        end_hold(stage)
        stage.settle()
        assert stage.cards(new) and not stage.cards(old)
        check_at_rest(stage)

    def test_card_of_a_container_that_is_left_alone_is_given_to_nobody(self, stage: Stage) -> None:
        stage.add_cards(1)
        old = stage.running(name="old", gpus="1")
        yesterday = Yesterday(stage)
        stage.stop(old)
        stage.settle()
        stage.running(name="new", gpus="1")
        yesterday.restore()
        stage.loop.one_pass()
        with pytest.raises(HoldClash):
            end_hold(stage, keep_rest=True)

    def test_port_that_was_handed_on_goes_to_who_has_it_when_the_former_is_forgotten(self, stage: Stage) -> None:
        old = stage.running(name="old")
        yesterday = Yesterday(stage)
        stage.remove(old)
        stage.settle()
        new = stage.running(name="new")
        spec = box(stage, new).spec
        object.__setattr__(spec, "ports", as_yesterday(spec.ports, yesterday))
        yesterday.restore()
        decide(stage, old="keep", new="adopt")
        with pytest.raises(HoldClash) as caught:
            end_hold(stage)
        assert caught.value.facts["what"].startswith("port ")
        decide(stage, old="forget")
        end_hold(stage)
        assert set(stage.ports(new).values()) == {port.host_port for port in spec.ports}


def as_yesterday(ports: Sequence[PublishedPort], yesterday: Yesterday) -> tuple[PublishedPort, ...]:
    """On the ports of the only workspace that there was."""
    rows = next(rows for table, rows in yesterday.rows.items() if table.name == "port_claims")
    held = {CONTAINER_PORTS[Service(row["service"])]: row["port"] for row in rows}
    return tuple(replace(port, host_port=held[port.container_port]) for port in ports)
