"""What every engine shows of containers that end, and of what happened to them."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest
from contract_lab import Lab, Spec, actions, after, detail_of, eventually, running


class EndingsContract:
    """Inherited by EngineContract."""

    # -- how a container ends

    @pytest.mark.parametrize("exit_code", [0, 3, 137])
    def test_an_end_by_itself_keeps_its_exit_code(self, lab: Lab, spec: Spec, exit_code: int) -> None:
        detail = after(lab, running(lab, spec()), lambda id_: lab.finish(id_, exit_code))

        assert detail.exit_code == exit_code and not detail.oom_killed

    def test_a_main_process_out_of_memory_is_told_from_a_kill(self, lab: Lab, spec: Spec) -> None:
        since = datetime.now(UTC)
        detail = after(lab, running(lab, spec()), lab.run_out_of_memory)

        assert detail.exit_code == 137 and detail.oom_killed
        assert {"oom", "die"} <= actions(lab, since) and not {"kill", "stop"} & actions(lab, since)

    def test_a_child_out_of_memory_shows_in_events_while_its_container_runs(self, lab: Lab, spec: Spec) -> None:
        since = datetime.now(UTC)
        id_ = running(lab, spec())
        lab.child_out_of_memory(id_)
        eventually(lambda: "oom" in actions(lab, since))

        assert detail_of(lab, id_).container.is_up
        assert not detail_of(lab, id_).oom_killed       # once it has ended, whatever the engine says before
        lab.engine.stop(id_, 5)
        assert detail_of(lab, id_).oom_killed and detail_of(lab, id_).exit_code == 143
        lab.engine.start(id_)
        assert not detail_of(lab, id_).oom_killed

    def test_a_stop_leaves_kill_before_die(self, lab: Lab, spec: Spec) -> None:
        since = datetime.now(UTC)
        id_ = running(lab, spec())
        lab.engine.stop(id_, 5)
        eventually(lambda: {"die", "stop"} <= actions(lab, since))

        events = list(lab.engine.events(since, datetime.now(UTC)))

        said = [event.action for event in events]
        assert said[:3] == ["create", "start", "kill"] and sorted(said[3:]) == ["die", "stop"]     # 26: stop, then die
        assert {event.container_id for event in events} == {id_}
        assert {event.container_name for event in events} == {spec().name}

    def test_an_end_by_itself_leaves_die_alone(self, lab: Lab, spec: Spec) -> None:
        since = datetime.now(UTC)
        after(lab, running(lab, spec()), lambda id_: lab.finish(id_, 3))
        eventually(lambda: "die" in actions(lab, since))

        assert actions(lab, since) == {"create", "start", "die"}

    def test_the_engine_began_before_what_it_runs_ended(self, lab: Lab, spec: Spec) -> None:
        detail = after(lab, running(lab, spec()), lambda id_: lab.finish(id_, 0))
        began = lab.engine.started_at()

        assert began is not None and detail.finished_at is not None and began < detail.finished_at

    # -- events

    def test_events_of_another_instance_are_not_shown(self, lab: Lab, spec: Spec) -> None:
        since = datetime.now(UTC)
        lab.other_engine.prepare()
        lab.other_engine.create(spec("9", engine_instance=lab.other_instance))

        assert list(lab.engine.events(since, datetime.now(UTC))) == []

    def test_events_end_at_until_and_begin_at_since(self, lab: Lab, spec: Spec) -> None:
        start = datetime.now(UTC)
        id_ = lab.engine.create(spec())
        middle = datetime.now(UTC)
        lab.engine.start(id_)

        assert [e.action for e in lab.engine.events(start, middle)] == ["create"]
        assert [e.action for e in lab.engine.events(middle, datetime.now(UTC))] == ["start"]

    def test_a_follower_sees_events_at_once_and_ends_with_close(self, lab: Lab, spec: Spec) -> None:
        seen: list[str] = []
        stream = lab.engine.events(datetime.now(UTC))
        follower = threading.Thread(target=lambda: seen.extend(event.action for event in stream))
        follower.start()
        lab.engine.create(spec())
        eventually(lambda: "create" in seen, seconds=2)

        lab.engine.close()
        follower.join(timeout=5)

        assert not follower.is_alive()
