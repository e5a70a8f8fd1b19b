"""On hold the agent only looks; what was decided is what comes of it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from agent.stage import Stage, check, check_at_rest
from agent.yesterday import HOUSE, OF_LOOKING, Yesterday, box, decide, end_hold, findings, kinds, put_on, rows_of
from webapp.agent import fencing, operations, worker
from webapp.domain.container import File
from webapp.domain.hold import Decision
from webapp.domain.hold_errors import FindingChanged, HoldBlind, NotADecision, OnHold, Undecided
from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.workspace import Desired, Phase
from webapp.services import gpus, hold, workspaces
from webapp.services import operations as asking
from webapp.services.hold_release import release
from webapp.store.tables import AgentState, Event, HoldFinding, Workspace, WorkspaceSecret

MADE = File("/opt/made", 0o644, 10000, 10000, b"kept")


@pytest.fixture
def house_of_six(stage: Stage) -> tuple[Stage, dict[str, Workspace]]:
    """Yesterday six ran, each on one card but two of them; since then all was changed but for the first."""
    stage.add_cards(6)
    made = {f"run-{n}": stage.running(name=f"run-{n}", gpus="1" if n > 2 else "0") for n in range(1, 7)}
    yesterday = Yesterday(stage)
    stage.stop(made["run-2"])                                       # stopped
    stage.remove(made["run-3"])                                     # removed
    stage.change(made["run-4"], gpus="2")                           # moved
    stage.settle()
    stage.engine.remove_by_hand(stage.name(made["run-6"]))
    stage.settle()
    made["new"] = stage.running(name="new")
    yesterday.restore()
    return stage, made


class TestLooking:
    def test_nothing_is_touched_and_all_is_shown(self, house_of_six: tuple[Stage, dict[str, Workspace]]) -> None:
        stage, _ = house_of_six
        before = rows_of(stage.store)
        expected = {"run-2": "down_but_wanted", "run-3": "gone", "run-4": "cards", "run-6": "gone",
                    "new": "unknown_container"}
        assert kinds(stage) == expected
        stage.live(120)
        assert kinds(stage) == expected and stage.deeds() == []
        after = rows_of(stage.store)
        assert [table.name for table in before if before[table] != after[table] and table.name not in OF_LOOKING] == []

    def test_second_start_changes_nothing(self, house_of_six: tuple[Stage, dict[str, Workspace]]) -> None:
        stage, _ = house_of_six
        before = findings(stage)
        stage.take_over()
        assert findings(stage) == before and stage.deeds() == []

    def test_operations_that_look_are_done_and_others_wait(self, stage: Stage) -> None:
        workspace = stage.running()
        put_on(stage)
        logs, size, keys = (
            stage.do(asking.request, stage.cast.alice, kind, workspace_id=workspace.id, arguments={})
            for kind in (OperationKind.WORKSPACE_LOGS, OperationKind.WORKSPACE_SIZE, OperationKind.WORKSPACE_KEYS))
        stage.forget_calls()
        stage.loop.one_pass()
        operations.carry_out(stage.context, keys.id)
        states = [stage.operation(each).state for each in (logs, size, keys)]
        assert states == [OperationState.DONE, OperationState.DONE, OperationState.WAITING] and stage.deeds() == []

    def test_what_is_wished_meanwhile_waits_for_the_end(self, stage: Stage) -> None:
        ran, stopped = stage.running(name="ran"), stage.running(name="stopped")
        stage.stop(stopped)
        stage.settle()
        put_on(stage)
        stage.forget_calls()
        stage.stop(ran)
        stage.start(stopped)
        new = stage.launch(name="new")
        assert kinds(stage) == {} and stage.deeds() == []
        end_hold(stage)
        stage.settle()
        phases = [stage.row(each).phase for each in (ran, stopped, new)]
        assert phases == [Phase.STOPPED, Phase.RUNNING, Phase.RUNNING]
        check_at_rest(stage)

    def test_nothing_with_cards_is_claimed_meanwhile(self, stage: Stage) -> None:
        stage.add_cards(2)
        workspace = stage.running(gpus="1")
        stage.stop(workspace)
        stage.settle()
        put_on(stage)
        with pytest.raises(OnHold):
            stage.launch(name="new", gpus="1")
        with pytest.raises(OnHold):
            stage.start(workspace)
        with pytest.raises(OnHold):
            stage.change(workspace, gpus="2", start=True)
        assert stage.cards(workspace) == []

    def test_silent_engine_leaves_rows_as_they_are(self, stage: Stage) -> None:
        workspace = stage.running()
        put_on(stage)
        stage.engine.down = True
        stage.loop.one_pass()
        assert stage.row(workspace).phase == Phase.RUNNING
        with pytest.raises(HoldBlind):
            stage.do(release, HOUSE)

    def test_trespasser_is_shown_and_not_fenced(self, stage: Stage) -> None:
        stage.add_cards(2)
        workspace = stage.running(gpus="1")
        with stage.store.write() as session:
            gpus.release(session, workspace.id)
        put_on(stage)
        stage.forget_calls()
        fencing.stop(stage.context, workspace.id, box(stage, workspace).listed())
        assert kinds(stage) == {"run-1": "cards"} and stage.deeds() == []

    def test_worker_that_is_at_work_ends_before_its_next_step(self, stage: Stage) -> None:
        workspace = stage.launch()
        create = stage.engine.create

        def create_and_hold(spec: Any) -> str:
            put_on(stage)
            return create(spec)

        stage.engine.create = create_and_hold       # type: ignore[method-assign]
        worker.work_on(stage.context, workspace.id)
        assert [call for call in stage.deeds() if not call.startswith("create")] == []
        assert stage.row(workspace).container_id is None

    def test_what_was_recorded_under_hold_is_nothing(self, stage: Stage) -> None:
        workspace = stage.running()
        stage.stop(workspace)
        put_on(stage)
        worker.work_on(stage.context, workspace.id)
        assert stage.row(workspace).phase == Phase.RUNNING

    def test_difference_that_was_put_right_by_hand_is_gone(self, stage: Stage) -> None:
        workspace = stage.running()
        put_on(stage)
        stage.engine.end(stage.name(workspace), 0, by_hand=True)
        assert kinds(stage) == {"run-1": "down_but_wanted"}
        stage.engine.start(stage.name(workspace))
        assert kinds(stage) == {}


class TestDeciding:
    def test_undecided_ones_refuse_the_end(self, house_of_six: tuple[Stage, dict[str, Workspace]]) -> None:
        stage, _ = house_of_six
        decide(stage, run_2="keep")
        with pytest.raises(Undecided) as caught:
            end_hold(stage)
        assert {"run-3", "run-4", "run-6", "new"} == set(caught.value.facts["names"].split(", "))
        assert stage.deeds() == []

    def test_decision_is_undone_when_something_changes(self, stage: Stage) -> None:
        workspace = stage.running()
        put_on(stage)
        stage.engine.end(stage.name(workspace), 0, by_hand=True)
        seen = findings(stage)["run-1"]
        decide(stage, run_1="keep")
        stage.engine.remove_by_hand(stage.name(workspace))
        now = findings(stage)["run-1"]
        assert (now.kind, now.decision, now.decided_before) == ("gone", None, Decision.KEEP)
        with pytest.raises(FindingChanged):
            stage.do(hold.decide, HOUSE, workspace.id, "keep", seen=seen.mark)
        with pytest.raises(Undecided):
            stage.do(release, HOUSE)

    @pytest.mark.parametrize(("name", "decision"), [("run-3", "adopt"), ("run-4", "forget"), ("new", "keep"),
                                                    ("new", "burn")])
    def test_what_is_no_way_out_is_refused(
        self, house_of_six: tuple[Stage, dict[str, Workspace]], name: str, decision: str,
    ) -> None:
        stage, _ = house_of_six
        found = findings(stage)[name]
        with pytest.raises(NotADecision):
            stage.do(hold.decide, HOUSE, found.workspace_id, decision)

    def test_end_needs_a_look_of_a_moment_ago(self, stage: Stage) -> None:
        stage.running()
        put_on(stage)
        with pytest.raises(HoldBlind):
            stage.do(release, HOUSE)
        stage.loop.one_pass()
        stage.clock.sleep(60)
        with pytest.raises(HoldBlind):
            stage.do(release, HOUSE)

    def test_all_the_rest_is_kept_and_unknown_ones_left_alone(
        self, house_of_six: tuple[Stage, dict[str, Workspace]],
    ) -> None:
        stage, made = house_of_six
        unknown = box(stage, made["new"]).id
        decide(stage, run_4="adopt")
        end_hold(stage, keep_rest=True)
        stage.settle()
        rows = {name: stage.row(made[name]) for name in made if name != "new"}
        assert {name: row.phase for name, row in rows.items()} == dict.fromkeys(rows, Phase.RUNNING)
        assert box(stage, made["new"]).id == unknown and box(stage, made["new"]).is_up
        with stage.store.read() as session:
            assert session.get(Workspace, made["new"].id) is None
        check(stage)


class TestAfterwards:
    def test_adopted_ones_go_on_untouched(self, house_of_six: tuple[Stage, dict[str, Workspace]]) -> None:
        stage, made = house_of_six
        ports, cards = {p.host_port for p in box(stage, made["new"]).spec.ports}, box(stage, made["run-4"]).spec.gpus
        stage.loop.one_pass()
        for kind in ("down_but_wanted", "cards", "unknown_container"):
            assert stage.do(hold.decide_all, HOUSE, kind, "adopt") == ()
        assert stage.do(hold.decide_all, HOUSE, "gone", "forget") == ()
        stage.forget_calls()
        end_hold(stage)
        stage.settle()
        assert [deed for deed in stage.deeds() if not deed.startswith(("prepare", "remove_volume"))] == []
        phases = {name: stage.row(row).phase for name, row in made.items()}
        assert phases == {"run-1": "running", "run-2": "stopped", "run-3": "removed", "run-4": "running",
                          "run-5": "running", "run-6": "removed", "new": "running"}
        new = stage.row(made["new"])
        assert (new.name, new.owner_id, new.image_id) == ("new", stage.cast.alice.member_id, stage.cast.image_id)
        assert set(stage.ports(new).values()) == ports
        assert tuple(stage.cards(made["run-4"])) == cards.uuids and stage.row(made["run-4"]).gpu_count == 2
        check_at_rest(stage)
        for name in ("run-1", "run-4", "new"):          # and whatever is asked for is done as ever
            stage.stop(made[name])
            stage.settle()
            stage.start(made[name])
            stage.settle()
        check_at_rest(stage)

    def test_keys_of_an_adopted_one_are_read_back(self, house_of_six: tuple[Stage, dict[str, Workspace]]) -> None:
        stage, made = house_of_six
        files = stage.engine.files(stage.name(made["new"]))
        stage.loop.one_pass()
        decide(stage, new="adopt")
        end_hold(stage, keep_rest=True)
        stage.live(15)
        with stage.store.read() as session:
            secret = session.get_one(WorkspaceSecret, made["new"].id)
        assert secret.jupyter_token.encode() == files["/etc/berth/token"].content
        assert secret.host_private_key.encode() == files["/etc/berth/ssh_host_ed25519_key"].content
        connection = stage.do(workspaces.reveal, stage.cast.alice, made["new"].id)
        assert connection.host_public_key.startswith("ssh-ed25519 ")

    def test_kept_ones_become_what_the_rows_say(self, stage: Stage) -> None:
        stage.add_cards(4)
        runs, moved = stage.running(name="runs"), stage.running(name="moved", gpus="1")
        stage.stop(runs)
        stage.settle()
        yesterday, cards = Yesterday(stage), stage.cards(moved)
        stage.start(runs)
        stage.change(moved, gpus="2", memory="4GiB")
        stage.settle()
        stage.engine.put(stage.name(moved, 2), [MADE])
        yesterday.restore()
        assert kinds(stage) == {"moved": "cards", "runs": "runs_but_stopped"}
        decide(stage, moved="keep", runs="keep")
        end_hold(stage)
        stage.settle()
        assert stage.row(runs).phase == Phase.STOPPED and stage.row(moved).phase == Phase.RUNNING
        assert stage.cards(moved) == cards
        assert stage.engine.read_file(stage.name(moved, 3), MADE.path) == MADE.content
        check_at_rest(stage)

    def test_other_limits_are_given_back_while_it_runs(self, stage: Stage) -> None:
        workspace = stage.running(memory="8GiB")
        yesterday, container = Yesterday(stage), box(stage, workspace)
        began = container.started_at
        stage.change(workspace, memory="4GiB")
        stage.settle()
        yesterday.restore()
        assert kinds(stage) == {"run-1": "moved"}
        decide(stage, run_1="keep")
        end_hold(stage)
        stage.settle()
        assert box(stage, workspace) is container and container.started_at == began
        assert container.spec.limits.memory_bytes == 8 * 2**30
        check_at_rest(stage)

    def test_container_of_a_forgotten_one_is_never_touched(self, stage: Stage) -> None:
        workspace = stage.running()
        put_on(stage)
        stage.engine.end(stage.name(workspace), 0, by_hand=True)
        decide(stage, run_1="forget")
        stage.forget_calls()
        end_hold(stage)
        stage.live(120)
        stage.engine.start(stage.name(workspace))       # by hand: it is nobody's business
        stage.forget_calls()
        stage.live(60)
        assert stage.deeds() == []
        assert box(stage, workspace).is_up and stage.row(workspace).phase == Phase.REMOVED
        assert stage.ports(workspace) == {}
        put_on(stage)
        assert kinds(stage) == {"run-1": "unknown_container"}
        assert findings(stage)["run-1"].decision == Decision.FORGET     # and nobody is asked again
        end_hold(stage)

    def test_forgotten_one_can_be_taken_over_by_the_next_hold(self, stage: Stage) -> None:
        workspace = stage.running()
        put_on(stage)
        stage.engine.end(stage.name(workspace), 0, by_hand=True)
        decide(stage, run_1="forget")
        end_hold(stage)
        stage.settle()
        other = stage.running(name="run-1")
        put_on(stage)
        found = findings(stage)
        mine = next(row for row in found.values() if row.workspace_id == workspace.id)
        stage.do(hold.decide, HOUSE, mine.workspace_id, "adopt")
        end_hold(stage)
        stage.settle()
        row = stage.row(workspace)
        assert (row.phase, row.desired, row.name) == (Phase.STOPPED, Desired.STOPPED, "run-2")
        assert stage.row(other).phase == Phase.RUNNING
        stage.start(workspace)
        stage.settle()
        check_at_rest(stage)

    def test_what_happened_is_written_down(self, house_of_six: tuple[Stage, dict[str, Workspace]]) -> None:
        stage, made = house_of_six
        end_hold(stage, keep_rest=True)
        with stage.store.read() as session:
            actions = list(session.scalars(select(Event.action).where(Event.object_type == "hold")))
            assert session.get_one(AgentState, 1).hold is None
            assert [row.workspace_id for row in session.scalars(select(HoldFinding))] == [made["new"].id]
        assert actions == ["hold.put_on", "hold.release"]
