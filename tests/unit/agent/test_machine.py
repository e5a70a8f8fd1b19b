"""Anything in any order: people, crashes, a second agent, hands at the machine, an engine that restarts.

The protocol of the claims on the real services. What must hold at every moment is asked after every step; at the end
of each story everything is given time, and then wish and world must agree, and after a removal nothing may be left.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent.faults import Crash, MomentousEngine, MomentousStore, Moments, die
from agent.stage import Stage, check, check_at_rest, make_fast
from webapp.domain.house import HouseRules
from webapp.domain.workspace import Service
from webapp.engines.fake_state import FakeContainer
from webapp.errors import Conflict, EngineUnreachable, NoFreePort
from webapp.store.session import Store
from webapp.store.tables import Workspace

MOST_WORKSPACES = 3
which = st.integers(0, 20)          # of several, counted round
moment = st.integers(1, 16)
wishes = st.sampled_from([Stage.start, Stage.stop, Stage.start, Stage.stop, Stage.start, Stage.stop, Stage.remove])


class Story(RuleBasedStateMachine):
    folder: Path
    template: Path
    cast_: Any
    house: HouseRules
    number = 0

    @initialize()
    def begin(self) -> None:
        type(self).number += 1
        path = self.folder / f"story-{self.number}.db"
        shutil.copy(self.template, path)
        self.stage = Stage(make_fast(Store(f"sqlite:///{path}")), self.cast_, self.house, self.start)
        self.workspaces: list[Workspace] = []

    # -- people

    @precondition(lambda self: len(self.workspaces) < MOST_WORKSPACES)
    @rule()
    def launch(self) -> None:
        with suppress(NoFreePort):
            self.workspaces.append(self.stage.launch(name=f"run-{len(self.workspaces)}"))

    @rule(which=which, wish=wishes)
    def wish(self, which: int, wish: Any) -> None:
        with suppress(Conflict):
            for workspace in self.workspaces[which % 3:][:1]:
                wish(self.stage, workspace)

    # -- the agent

    @rule(seconds=st.sampled_from([0, 0, 3, 20, 700]))
    def live(self, seconds: float) -> None:
        self.stage.clock.sleep(seconds)
        self.stage.loop.one_pass()
        self.stage.loop.one_pass()

    @rule(at=moment, which=which, wish=wishes)
    def crash(self, at: int, which: int, wish: Any) -> None:
        self.wish(which, wish)
        with suppress(Crash):
            self._pass_with(Moments(at, die))
        self.stage.take_over()

    @rule(at=moment, which=which, wishes=st.tuples(wishes, wishes))
    def second_agent(self, at: int, which: int, wishes: Any) -> None:
        """Held up at a moment while another works; what it does after that is set right by a pass of the other."""
        self.wish(which, wishes[0])

        def another() -> None:
            before = self.stage.loop, self.stage.context
            self.stage.take_over()
            self.stage.loop.one_pass()
            self.wish(which, wishes[1])
            self.stage.loop.one_pass()
            self.newest = self.stage.loop, self.stage.context
            self.stage.loop, self.stage.context = before

        moments = Moments(at, another)
        self._pass_with(moments)
        if not moments.came:
            self.stage.take_over()
            return
        self.stage.loop, self.stage.context = self.newest
        self.stage.clock.sleep(6)
        self.stage.loop.one_pass()

    def _pass_with(self, moments: Moments) -> None:
        engine, store = MomentousEngine(self.stage.engine, moments), MomentousStore(self.stage.store, moments)
        self.stage.take_over(engine=cast(Any, engine), store=cast(Any, store))
        self.stage.loop.one_pass()

    # -- the machine

    @rule(which=which, by_hand=st.booleans(), oom=st.booleans())
    def end(self, which: int, by_hand: bool, oom: bool) -> None:
        for container in self._some(which, up=True):
            self.stage.engine.end(container.name, 137 if oom else 1, by_hand=by_hand, oom=oom and not by_hand)

    @rule(which=which)
    def remove_by_hand(self, which: int) -> None:
        for container in self._some(which):
            self.stage.engine.remove_by_hand(container.name)

    @rule(which=which)
    def start_by_hand(self, which: int) -> None:
        for container in self._some(which, up=False):
            mine = [one for one in self.stage.machine.containers.values() if _of(one) == _of(container)]
            if len(mine) == 1 and not self.stage.engine.down:
                with suppress(Exception):
                    self.stage.engine.start(container.name)

    @rule(orderly=st.booleans())
    def restart_engine(self, orderly: bool) -> None:
        self.stage.engine.restart_engine(orderly=orderly)

    @rule()
    def engine_goes_or_comes(self) -> None:
        self.stage.engine.down = not self.stage.engine.down

    @rule(call=st.sampled_from(["create", "start", "put", "stop", "remove", "commit", "list"]), after=st.booleans())
    def lose_an_answer(self, call: str, after: bool) -> None:
        self.stage.engine.fail_next(call, EngineUnreachable(host="gpu1", detail="timed out"), after=after)

    @rule(which=which)
    def stranger_listens(self, which: int) -> None:
        taken = self.stage.engine.taken_ports
        port = 20000 + which % 8
        taken.symmetric_difference_update({port} if self.stage.machine.holder_of(port) is None else set())

    @rule(service=st.sampled_from(list(Service)))
    def service_sleeps_or_wakes(self, service: Service) -> None:
        self.stage.silent ^= {service}

    def _some(self, which: int, *, up: bool | None = None) -> list[FakeContainer]:
        there = [one for one in self.stage.machine.containers.values() if up is None or one.is_up == up]
        return [there[which % len(there)]] if there else []

    # -- what must hold

    @invariant()
    def nothing_is_there_twice(self) -> None:
        if hasattr(self, "stage"):
            check(self.stage)

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        stage = self.stage
        stage.engine.down, stage.silent = False, set()
        stage.engine._failures.clear()
        stage.engine.taken_ports.clear()
        stage.live(100)
        check_at_rest(stage)
        for workspace in self.workspaces:
            stage.remove(workspace)
        stage.live(10)
        check_at_rest(stage)
        stage.store.close()


def _of(container: FakeContainer) -> str:
    return container.spec.labels["berth.workspace"]


@pytest.mark.parametrize(("stories", "steps"), [(8, 25), pytest.param(600, 60, marks=pytest.mark.soak)])
def test_any_story_ends_well(
    stories: int, steps: int, template: tuple[Path, Any], tmp_path: Path, house: HouseRules, now: Any, log: Any,
) -> None:
    """The short run tells the same stories each time; the long one tells new ones."""
    path, cast_ = template
    story = type("Story", (Story,), {
        "folder": tmp_path, "template": path, "cast_": cast_, "house": house, "start": now})
    run_state_machine_as_test(story, settings=settings(
        max_examples=stories, stateful_step_count=steps, deadline=None, derandomize=stories < 100, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate] if stories > 99 else list(Phase)))
    unforeseen = [entry["exception"] for entry in log if "exception" in entry]
    assert not unforeseen, unforeseen[0]
