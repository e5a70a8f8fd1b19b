"""Workspaces with cards: exactly those that it holds are in the container, and it moves when they went to others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.rack import MODEL, Rack, card
from agent.stage import Stage, check_at_rest
from webapp.domain.container import NO_GPUS, File
from webapp.domain.workspace import Phase
from webapp.engines import ExecResult
from webapp.errors import GpusRefused
from webapp.services import gpus
from webapp.store.tables import Workspace

INSTALLED = File("/opt/berth/py/installed", 0o644, 10000, 10000, b"with pip")
DONE = ["image", "created", "ssh", "gpus", "jupyter", "ready"]


@pytest.fixture(autouse=True)
def rack(stage: Stage) -> Rack:
    """Four cards in two pairs."""
    return stage.add_cards(4)


def inside(stage: Stage, output: str, exit_code: int = 0) -> None:
    """What `nvidia-smi -L` prints in every container."""
    stage.engine.on_exec = lambda _name, argv: ExecResult(exit_code, output) if argv[0] == "nvidia-smi" else None


def listing(*uuids: str) -> str:
    return "".join(f"GPU {index}: {MODEL} (UUID: {uuid})\n" for index, uuid in enumerate(uuids))


class TestLaunch:
    @pytest.mark.parametrize(("typed", "cards"), [
        ({"gpus": "2"}, [card(0), card(1)]), ({"gpu_uuids": (card(3), card(1))}, [card(1), card(3)]), ({}, [])])
    def test_container_asks_for_exactly_what_it_holds(self, stage: Stage, typed: Any, cards: list[str]) -> None:
        workspace = stage.running(**typed)
        (container,) = stage.machine.containers.values()
        assert list(container.spec.gpus.uuids) == cards == stage.cards(workspace)
        assert container.spec.labels["berth.gpus"] == ",".join(cards)
        check_at_rest(stage)

    def test_cards_are_looked_at_inside_before_it_is_called_running(self, stage: Stage) -> None:
        workspace = stage.running(gpus="1")
        assert stage.steps(workspace) == dict.fromkeys(DONE, "done")
        assert ("exec", stage.name(workspace), "nvidia-smi", "-L") in stage.engine.calls

    def test_without_cards_nothing_is_asked_and_none_is_given(self, stage: Stage) -> None:
        workspace = stage.running()
        assert "gpus" not in stage.steps(workspace)
        assert [container.spec.gpus for container in stage.machine.containers.values()] == [NO_GPUS]
        assert not [call for call in stage.engine.calls if call[0] == "exec"]


class TestCheckInside:
    """What fails it is stopped, and holds nothing."""

    def fails(self, stage: Stage, workspace: Workspace, code: str) -> str:
        stage.live(120)
        row = stage.row(workspace)
        assert (row.phase, row.reason and row.reason["code"]) == (Phase.FAILED, code)
        assert not stage.containers()[0].is_up
        check_at_rest(stage)
        return str(stage.said(workspace))

    @pytest.mark.parametrize("others", [(card(2),), (card(0), card(1)), ()])
    def test_engine_that_was_asked_for_others(self, stage: Stage, others: tuple[str, ...]) -> None:
        workspace = stage.launch(gpus="1")

        def with_others(container: Any) -> None:
            container.spec = replace(container.spec, gpus=replace(container.spec.gpus, uuids=others))

        stage.machine.on_start = with_others
        assert card(0) in self.fails(stage, workspace, "gpus_differ")

    @pytest.mark.parametrize("others", [(card(2),), (card(0), card(1))])
    def test_toolkit_that_gave_others(self, stage: Stage, others: tuple[str, ...]) -> None:
        workspace = stage.launch(gpus="1")
        inside(stage, listing(*others))
        assert ", ".join(others) in self.fails(stage, workspace, "gpus_differ")
        assert len([deed for deed in stage.deeds() if deed.startswith("start")]) == 1, "it was tried again"

    @pytest.mark.parametrize(("output", "exit_code"), [
        ("Failed to initialize NVML: Unknown Error\n", 255), ("No devices found.\n", 0), ("", 127)])
    def test_toolkit_that_gave_none(self, stage: Stage, output: str, exit_code: int) -> None:
        workspace = stage.launch(gpus="1")
        inside(stage, output, exit_code)
        assert (output.strip() or "exit code 127") in self.fails(stage, workspace, "gpus_unseen")

    @pytest.mark.parametrize("first", [listing(card(0)), "No devices found.\n"])
    def test_card_that_comes_late_is_waited_for(self, stage: Stage, first: str) -> None:
        workspace = stage.launch(gpus="2")
        inside(stage, first)
        stage.settle()
        assert stage.row(workspace).phase == Phase.STARTING and stage.row(workspace).next_try_at is not None
        inside(stage, listing(card(0), card(1)))
        stage.live(10)
        assert (stage.row(workspace).phase, stage.row(workspace).reason) == (Phase.RUNNING, None)
        check_at_rest(stage)

    def test_slices_are_told_apart_from_their_card(self, stage: Stage) -> None:
        workspace = stage.launch(gpus="1")
        inside(stage, f"{listing(card(0))}  MIG 3g.40gb     Device  0: (UUID: MIG-{card(0)[4:]})\n")
        self.fails(stage, workspace, "gpus_differ")


class TestBeforeTheStart:
    def test_card_that_fell_off_is_waited_for_and_kept(self, stage: Stage, rack: Rack) -> None:
        workspace = stage.launch(gpus="1")
        rack.gone = {card(0)}
        stage.look_at_cards()
        stage.live(60)
        assert "is no longer listed by the driver" in str(stage.said(workspace))
        assert stage.cards(workspace) == [card(0)]
        assert not [deed for deed in stage.deeds() if deed.startswith("start")]
        rack.gone = set()
        stage.look_at_cards()
        stage.live(60)
        assert stage.row(workspace).phase == Phase.RUNNING
        check_at_rest(stage)

    def test_card_that_stays_away_fails_it_and_start_gives_another(self, stage: Stage, rack: Rack) -> None:
        workspace = stage.launch(gpus="1")
        rack.gone = {card(0)}
        stage.look_at_cards()
        stage.live(900)
        row = stage.row(workspace)
        assert (row.phase, row.reason and row.reason["code"]) == (Phase.FAILED, "gpu_vanished")
        check_at_rest(stage)
        stage.start(workspace)
        stage.settle()
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.RUNNING, [card(1)])
        check_at_rest(stage)

    def test_toolkit_that_refuses_is_asked_again(self, stage: Stage) -> None:
        workspace = stage.launch(gpus="1")
        refusal = GpusRefused(host="gpu1", detail="lstat /dev/nvidia-uvm-tools: no such file")
        for _ in range(5):
            stage.engine.fail_next("start", refusal)
        stage.live(30)
        assert "lstat /dev/nvidia-uvm-tools" in str(stage.said(workspace))
        stage.live(120)
        assert stage.row(workspace).phase == Phase.RUNNING
        check_at_rest(stage)

    def test_toolkit_that_always_refuses_fails_it(self, stage: Stage) -> None:
        workspace = stage.launch(gpus="1")
        stage.engine.rack = Rack(4)     # the toolkit has lost them, and the driver has not
        stage.engine.rack.gone = set(stage.engine.rack.uuids)
        stage.live(900)
        row = stage.row(workspace)
        assert (row.phase, row.reason and row.reason["code"], stage.containers()) == (Phase.FAILED, "gpus_refused", [])
        check_at_rest(stage)

    def test_claims_that_were_lost_start_nothing(self, stage: Stage) -> None:
        """A database that somebody mended by hand."""
        workspace = stage.launch(gpus="2")
        with stage.store.write() as session:
            gpus.release(session, workspace.id)
        stage.settle()
        assert stage.said(workspace) == "It is to have 2 GPUs and holds 0."
        assert not [deed for deed in stage.deeds() if deed.startswith("start")]
        check_at_rest(stage)


class TestOtherCards:
    """Stopped, and somebody else took its card: it starts on another."""

    @pytest.fixture
    def workspace(self, stage: Stage) -> Workspace:
        workspace = stage.running(gpus="1")
        stage.engine.put(stage.name(workspace), [INSTALLED])
        stage.stop(workspace)
        stage.settle()
        return workspace

    def test_it_moves_with_its_layer_and_ports(self, stage: Stage, workspace: Workspace) -> None:
        ports = stage.ports(workspace)
        stage.running(name="faster", gpu_uuids=(card(0),))
        stage.start(workspace)
        stage.settle()
        assert (stage.row(workspace).phase, stage.cards(workspace), stage.ports(workspace)) == (
            Phase.RUNNING, [card(1)], ports)
        container = stage.machine.containers[stage.name(workspace, 2)]
        assert (container.spec.gpus.uuids, container.spec.labels["berth.gpus"]) == ((card(1),), card(1))
        assert stage.engine.read_file(container.name, INSTALLED.path) == INSTALLED.content
        assert stage.name(workspace) not in stage.machine.containers
        check_at_rest(stage)

    def test_its_note_says_which_until_the_next_wish(self, stage: Stage, workspace: Workspace) -> None:
        stage.running(name="faster", gpu_uuids=(card(0),))
        stage.start(workspace)
        stage.settle()
        assert f"Now it has GPU 1 ({MODEL})." in str(stage.noted(workspace))
        stage.live(60)
        assert stage.noted(workspace)
        stage.stop(workspace)
        stage.settle()
        assert stage.noted(workspace) is None

    def test_on_the_same_card_it_is_the_same_container_and_nothing_is_noted(
        self, stage: Stage, workspace: Workspace,
    ) -> None:
        before = stage.containers()[0].id
        stage.start(workspace)
        stage.settle()
        assert (stage.containers()[0].id, stage.noted(workspace)) == (before, None)
        check_at_rest(stage)

    def test_port_that_was_taken_says_nothing_of_cards(self, stage: Stage, workspace: Workspace) -> None:
        stage.engine.taken_ports.add(stage.ports(workspace)["ssh"])
        stage.start(workspace)
        stage.settle()
        assert "now listens on port" in str(stage.noted(workspace))
        check_at_rest(stage)

    def test_stopped_on_the_way_and_back_on_its_first_card_it_loses_nothing(
        self, stage: Stage, workspace: Workspace,
    ) -> None:
        """The first container fits again, but the second one ran: what was done in that is not given up for it."""
        faster = stage.running(name="faster", gpu_uuids=(card(0),))
        stage.start(workspace)
        later = File("/opt/berth/py/later", 0o644, 10000, 10000, b"later")

        def stop_in_the_second(container: Any) -> None:
            stage.machine.on_start = lambda _container: None
            stage.engine.put(container.name, [later])
            stage.stop(workspace)

        stage.machine.on_start = stop_in_the_second
        stage.settle()
        stage.remove(faster)
        stage.settle()
        assert len(stage.containers()) == 2
        for number in (1, 2, 3):
            stage.running(name=f"other-{number}", gpu_uuids=(card(number),))
        stage.start(workspace)
        stage.settle()
        assert (stage.row(workspace).phase, stage.cards(workspace)) == (Phase.RUNNING, [card(0)])
        (name,) = [one.name for one in stage.machine.containers.values() if workspace.id in one.name]
        assert stage.engine.read_file(name, later.path) == later.content
        check_at_rest(stage)

    def test_container_that_an_older_agent_made_for_the_old_card_is_not_taken_for_the_new_one(
        self, stage: Stage, workspace: Workspace,
    ) -> None:
        """It was held up before its call, which comes through between the newer one's list and creation."""
        stage.remove(workspace)
        stage.settle()
        workspace = stage.launch(name="run-2", gpus="1")
        old, create = stage.engine.create, stage.engine.create

        def after_the_old_one(spec: Any) -> str:
            stage.engine.create = create  # type: ignore[method-assign]
            other = card(1)
            old(replace(spec, gpus=replace(spec.gpus, uuids=(other,)),
                             labels={**spec.labels, "berth.gpus": other}))
            return create(spec)

        stage.engine.create = after_the_old_one  # type: ignore[method-assign]
        stage.settle()
        assert stage.row(workspace).phase == Phase.RUNNING
        check_at_rest(stage)
