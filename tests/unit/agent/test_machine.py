"""Anything in any order: people, crashes, a second agent, hands at the machine, cards that fall off, engine restarts.

The protocol of the claims on the real services. What must hold at every moment is asked after every step; at the end
of each story everything is given time, and then wish and world must agree, and after a removal nothing may be left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import pytest
from databases import Databases
from datakey import SEAL
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

from agent.faults import Crash, HeldUp, MomentousEngine, MomentousStore, Moments, die
from agent.rack import card
from agent.stage import HOST, Stage, check, check_at_rest, make_fast, trespassing
from webapp.domain.container import ContainerState, Room
from webapp.domain.house import HouseRules
from webapp.domain.sizes import GIB, MIB
from webapp.domain.workspace import Desired, Service
from webapp.engines.fake_state import FakeContainer
from webapp.errors import Conflict, DiskFull, EngineRejected, EngineUnreachable, GpusRefused, NoCapacity, NoFreePort
from webapp.store.session import Store
from webapp.store.tables import Workspace

MOST_WORKSPACES = 4
CARDS = 4                           # in two pairs; more are asked for than there are
TROUBLES_LAST = 4                   # steps at most: an engine that is silent for a whole story tells none
FULL = Room(MIB, GIB)
which = st.integers(0, 20)          # of several, counted round
cards = st.sampled_from([
    {}, {"gpus": "1"}, {"gpus": "1"}, {"gpus": "2"}, {"gpus": "3"}, {"gpu_uuids": (card(0),)},
    {"gpu_uuids": (card(2), card(1))},
])
moment = st.integers(1, 24)
Trouble = Callable[[Stage], None]


def lost_answer(call: str, after: bool) -> Trouble:
    return lambda stage: stage.engine.fail_next(call, EngineUnreachable(host=HOST, detail="timed out"), after=after)


def toolkit_refuses() -> Trouble:
    return lambda stage: stage.engine.fail_next("start", GpusRefused(host=HOST, detail="timed out"))


def commit_fails(disk_is_full: bool) -> Trouble:
    error = DiskFull(host=HOST, detail="no space left") if disk_is_full else EngineRejected(host=HOST, detail="no")
    return lambda stage: [stage.engine.fail_next("commit", error) for _ in range(4)] and None


def engine_goes_or_comes() -> Trouble:
    return lambda stage: setattr(stage.engine, "down", not stage.engine.down)


def engine_restarts(orderly: bool) -> Trouble:
    return lambda stage: stage.engine.restart_engine(orderly=orderly)


def stranger_listens(number: int) -> Trouble:
    port = 20000 + number % 8
    return lambda stage: stage.engine.taken_ports.symmetric_difference_update(
        {port} if stage.machine.holder_of(port) is None else set())


def service_sleeps_or_wakes(service: Service) -> Trouble:
    return lambda stage: stage.silent.symmetric_difference_update({service})


def card_falls_off_or_comes_back(number: int, is_seen: bool) -> Trouble:
    def fall(stage: Stage) -> None:
        stage.rack.gone ^= {card(number % CARDS)}
        if is_seen:
            stage.look_at_cards()
    return fall


def pauses_or_wakes_by_hand(number: int) -> Trouble:
    def pause(stage: Stage) -> None:
        up = [one for one in stage.machine.containers.values() if one.is_up]
        for container in up[number % len(up):][:1] if up else []:
            is_paused = container.state is ContainerState.PAUSED
            container.state = ContainerState.RUNNING if is_paused else ContainerState.PAUSED
    return pause


def disk_fills_or_empties() -> Trouble:
    return lambda stage: setattr(stage.machine, "room", None if stage.machine.room == FULL else FULL)


def programs_take_memory(number: int) -> Trouble:
    def take(stage: Stage) -> None:
        for container in stage.machine.containers.values():
            container.memory_used = number % 3 * 3 * GIB
    return take


calls = st.sampled_from(["create", "start", "put", "stop", "remove", "commit", "list", "inspect", "exec", "update",
                         "layer", "private_images"])
troubles = st.one_of(
    st.builds(lost_answer, calls, st.booleans()), st.builds(toolkit_refuses), st.builds(engine_goes_or_comes),
    st.builds(engine_restarts, st.booleans()), st.builds(stranger_listens, which),
    st.builds(service_sleeps_or_wakes, st.sampled_from(list(Service))),
    st.builds(card_falls_off_or_comes_back, which, st.booleans()), st.builds(pauses_or_wakes_by_hand, which),
    st.builds(disk_fills_or_empties), st.builds(programs_take_memory, which), st.builds(commit_fails, st.booleans()))
changes = st.builds(partial, st.just(Stage.change), start=st.booleans(), **{
    "gpus": st.sampled_from(["", "", "0", "1", "2", "3"]), "shm": st.sampled_from(["", "", "1GiB", "3GiB"]),
    "memory": st.sampled_from(["", "", "4GiB", "6GiB", "8GiB"])}) | st.builds(
    partial, st.just(Stage.change), gpu_uuids=st.sampled_from([(card(0),), (card(1), card(3)), (card(2),)]))
wishes = st.one_of(st.sampled_from([Stage.start, Stage.stop, Stage.start, Stage.stop, Stage.remove]), changes)


class Story(RuleBasedStateMachine):
    databases: Databases
    template: str
    cast_: Any
    house: HouseRules
    number = 0

    @initialize(first=st.lists(cards, min_size=1, max_size=3))
    def begin(self, first: Any) -> None:
        type(self).number += 1
        self.story = f"story-{self.number}"
        store = Store(self.databases.make(self.story, like=self.template), seal=SEAL)
        self.stage = Stage(make_fast(store), self.cast_, self.house, self.start)
        self.stage.add_cards(CARDS)
        self.workspaces: list[Workspace] = []
        self.strays: set[str] = set()   # containers that run without their cards, and no pass could be made since
        self.steps = 0
        for wanted in first:
            self.launch(wanted)
        self.one_pass()

    # -- people

    @precondition(lambda self: len(self._wanted()) < MOST_WORKSPACES)
    @rule(cards=cards)
    def launch(self, cards: Any) -> None:
        with suppress(NoFreePort, NoCapacity):
            self.workspaces.append(self.stage.launch(name=f"run-{len(self.workspaces)}", **cards))

    def _wanted(self) -> list[Workspace]:
        return [one for one in self.workspaces if self.stage.row(one).desired != Desired.REMOVED]

    @rule(which=which, wish=wishes)
    def wish(self, which: int, wish: Any) -> None:
        with suppress(Conflict, NoCapacity):        # of the latter nothing is left: check() sees to it
            if wanted := self._wanted():
                wish(self.stage, wanted[which % len(wanted)])

    # -- the agent

    @rule(seconds=st.sampled_from([0, 0, 3, 20, 700]))
    def live(self, seconds: float) -> None:
        self.stage.clock.sleep(seconds)
        if seconds:
            self.stage.look_at_cards()
        self.one_pass()
        self.one_pass()

    def one_pass(self) -> None:
        """Of the newest agent. One that nothing disturbs leaves no card with two users."""
        undisturbed = not self.stage.engine.down and not any(self.stage.engine._failures.values())
        self.stage.loop.one_pass()
        if undisturbed:
            assert not trespassing(self.stage), "the pass left a container on a card that is not its own"
        self.strays = trespassing(self.stage)

    @rule(at=moment, which=which, wish=wishes)
    def crash(self, at: int, which: int, wish: Any) -> None:
        self.wish(which, wish)
        with suppress(Crash):
            self._pass_with(Moments(at, die))
        self.stage.take_over()

    @rule(at=moment, which=which, other=which, wishes=st.tuples(wishes, wishes, wishes))
    def second_agent(self, at: int, which: int, other: int, wishes: Any) -> None:
        """Held up at a moment while another works; what it does after that is set right by a pass of the other."""
        self.wish(which, wishes[0])

        def another() -> None:
            before = self.stage.loop, self.stage.context
            self.stage.take_over()
            self.one_pass()
            self.wish(which, wishes[1])
            self.one_pass()
            self.wish(other, wishes[2])     # and the cards have another holder
            self.one_pass()
            self.newest = self.stage.loop, self.stage.context
            self.stage.loop, self.stage.context = before

        moments = Moments(at, another)
        self._pass_with(moments)
        if not moments.came:
            self.stage.take_over()
            return
        self.strays = trespassing(self.stage)
        self.stage.loop, self.stage.context = self.newest
        self.stage.clock.sleep(6)
        self.one_pass()

    @rule(at=moment, newer_at=moment, which=which, wishes=st.tuples(wishes, wishes))
    def two_agents_take_turns(self, at: int, newer_at: int, which: int, wishes: Any) -> None:
        """The older one is held up, and goes on while the newer one is."""
        self.wish(which, wishes[0])
        older = HeldUp(lambda pause: self._pass_with(Moments(at, pause)))
        self.wish(which, wishes[1])
        newer = Moments(newer_at, older.let_go)
        self._pass_with(newer)
        older.let_go()
        self.strays = trespassing(self.stage)
        self.stage.take_over()
        self.stage.clock.sleep(6)
        self.one_pass()

    def _pass_with(self, moments: Moments) -> None:
        engine, store = MomentousEngine(self.stage.engine, moments), MomentousStore(self.stage.store, moments)
        self.stage.take_over(engine=cast(Any, engine), store=cast(Any, store))
        self.stage.loop.one_pass()

    # -- the machine

    @rule(trouble=troubles)
    def trouble(self, trouble: Trouble) -> None:
        trouble(self.stage)

    @rule(which=which, by_hand=st.booleans(), oom=st.booleans())
    def end(self, which: int, by_hand: bool, oom: bool) -> None:
        for container in self._some(which, up=True):
            self.stage.engine.end(container.name, 137 if oom else 1, by_hand=by_hand, oom=oom and not by_hand)

    @rule(which=which, removes=st.sampled_from([False, False, True]))
    def start_or_remove_by_hand(self, which: int, removes: bool) -> None:
        for container in self._some(which, up=False):
            if removes:
                self.stage.engine.remove_by_hand(container.name)
            elif not self.stage.engine.down and len(self._of(container)) == 1:
                with suppress(Exception):
                    self.stage.engine.start(container.name)
                self.strays = trespassing(self.stage)

    def _some(self, which: int, *, up: bool) -> list[FakeContainer]:
        there = [one for one in self.stage.machine.containers.values() if one.is_up == up]
        return [there[which % len(there)]] if there else []

    def _of(self, container: FakeContainer) -> list[FakeContainer]:
        """All of its workspace."""
        owner = container.spec.labels["berth.workspace"]
        return [one for one in self.stage.machine.containers.values() if one.spec.labels["berth.workspace"] == owner]

    # -- what must hold

    @invariant()
    def nothing_is_there_twice(self) -> None:
        if not hasattr(self, "stage"):
            return
        check(self.stage)
        assert trespassing(self.stage) <= self.strays
        self.steps += 1
        if self.steps % TROUBLES_LAST == 0:
            self._heal()

    def _heal(self) -> None:
        self.stage.engine.down, self.stage.silent = False, set()
        self.stage.engine._failures.clear()

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        stage = self.stage
        self._heal()
        stage.engine.taken_ports.clear()
        stage.rack.gone.clear()
        stage.machine.room = None
        for container in stage.machine.containers.values():
            if container.state is ContainerState.PAUSED:
                container.state = ContainerState.RUNNING
        stage.look_at_cards()
        stage.live(100)
        check_at_rest(stage)
        for workspace in self.workspaces:
            stage.remove(workspace)
        stage.live(10)
        check_at_rest(stage)
        stage.store.close()
        self.databases.drop(self.story)


@pytest.mark.parametrize(("stories", "steps"), [
    (8, 25), pytest.param(600, 60, marks=[pytest.mark.soak, pytest.mark.timeout(2400)])])
def test_any_story_ends_well(
    stories: int, steps: int, template: tuple[str, Any], databases: Databases, house: HouseRules, now: Any, log: Any,
) -> None:
    """The short run tells the same stories each time; the long one tells new ones."""
    name, cast_ = template
    story = type("Story", (Story,), {
        "databases": databases, "template": name, "cast_": cast_, "house": house, "start": now})
    run_state_machine_as_test(story, settings=settings(
        max_examples=stories, stateful_step_count=steps, deadline=None, derandomize=stories < 100, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate] if stories > 99 else list(Phase)))
    unforeseen = [entry["exception"] for entry in log if "exception" in entry]
    assert not unforeseen, unforeseen[0]
