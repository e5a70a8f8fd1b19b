"""The rules of a workspace's life, as a table: (what is wanted, what is seen) → the one next step."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from webapp.domain.container import Container, ContainerState
from webapp.domain.plan import (
    LONGEST_WAIT,
    AwaitReady,
    CleanUp,
    Commit,
    Create,
    EnsureImage,
    Examine,
    Record,
    ReleaseGpus,
    Remove,
    Rest,
    Seen,
    Start,
    Stop,
    Wanted,
    container_name,
    own_containers,
    plan,
    private_image,
    trespassers,
)
from webapp.domain.workspace import Desired, Phase, Service

NOW = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PORTS = "jupyter=20001,ssh=20000"
OTHER_PORTS = "jupyter=20001,ssh=20777"     # before one of them was replaced
CREATED, UP, DOWN = ContainerState.CREATED, ContainerState.RUNNING, ContainerState.EXITED


def wanted(desired: Desired = Desired.RUNNING, phase: Phase = Phase.PULLING, **changes: Any) -> Wanted:
    """By default a launch that nobody has taken up yet."""
    values: dict[str, Any] = {
        "instance": "test1", "workspace_id": "abc", "desired": desired, "generation": 1, "attempted_generation": 0,
        "observed_generation": 0, "phase": phase, "revision": 0, "container_id": None, "private_image": None,
        "ports": {Service.SSH: 20000, Service.JUPYTER: 20001}, "next_try_at": None,
    }
    return Wanted(**values | changes)


def recorded(desired: Desired = Desired.RUNNING, phase: Phase = Phase.RUNNING, **changes: Any) -> Wanted:
    """The intent was answered, and container r1 is on record."""
    values = {"attempted_generation": 1, "observed_generation": 1, "revision": 1, "container_id": "id-r1"}
    return wanted(desired, phase, **values | changes)


def box(state: ContainerState, revision: int = 1, ports: str = PORTS, gpus: str = "", **changes: Any) -> Container:
    labels = {"berth.instance": "test1", "berth.workspace": "abc", "berth.revision": str(revision),
              "berth.ports": ports, "berth.gpus": gpus}
    container = Container(id=f"id-r{revision}", name=container_name("test1", "abc", revision), image_id="sha256:1",
                          state=state, labels=labels, created_at=NOW)
    return replace(container, **changes)


def r(revision: int) -> str:
    return container_name("test1", "abc", revision)


def step(want: Wanted, *containers: Container, image_ready: bool = False) -> Any:
    newest_first = tuple(sorted(containers, key=lambda one: one.revision or 0, reverse=True))
    return plan(want, Seen(newest_first, image_ready), now=NOW)


ASKED = {"generation": 2}                   # somebody asked since: attempted and observed are of the one before
RETRY = {"next_try_at": NOW - SECOND}


@pytest.mark.parametrize(("want", "containers", "expected"), [
    # a launch, step by step; after a crash the next agent begins wherever the engine is
    pytest.param(wanted(), [], EnsureImage(), id="nothing there: the image first"),
    pytest.param(wanted(), [box(CREATED)], Start(r(1)), id="made, not started"),
    pytest.param(wanted(), [box(UP)], AwaitReady(r(1)), id="started, not recorded"),
    pytest.param(recorded(phase=Phase.STARTING), [box(UP)], AwaitReady(r(1)), id="started and recorded, not ready"),
    pytest.param(recorded(), [box(UP)], Rest(), id="runs as recorded"),
    pytest.param(recorded(container_id="id-old"), [box(UP)], AwaitReady(r(1)), id="another container than recorded"),
    pytest.param(recorded(phase=Phase.UNKNOWN), [box(UP)], AwaitReady(r(1)), id="its host is back"),
    pytest.param(recorded(), [box(ContainerState.PAUSED)], Rest(), id="paused by hand is up"),
    # start again
    pytest.param(recorded(phase=Phase.STOPPED, **ASKED), [box(DOWN)], Start(r(1)), id="start the same container"),
    pytest.param(recorded(phase=Phase.FAILED, **ASKED), [box(DOWN)], Start(r(1)), id="start what failed"),
    pytest.param(recorded(phase=Phase.FAILED, **ASKED), [], EnsureImage(), id="start what is gone: anew"),
    pytest.param(recorded(phase=Phase.RUNNING, **ASKED), [box(UP)], AwaitReady(r(1)), id="stop and start at once"),
    # down although it should run
    pytest.param(recorded(), [box(DOWN)], Examine(r(1)), id="ended: find out why"),
    pytest.param(recorded(phase=Phase.UNKNOWN), [box(DOWN)], Examine(r(1)), id="ended while its host was silent"),
    pytest.param(recorded(phase=Phase.STARTING), [box(DOWN)], Examine(r(1)), id="ended before it was ready"),
    pytest.param(recorded(phase=Phase.STARTING, **RETRY), [box(DOWN)], Start(r(1)), id="examined: try again"),
    pytest.param(recorded(phase=Phase.RUNNING, **RETRY), [box(DOWN)], Examine(r(1)), id="a wait to tidy up is no try"),
    pytest.param(recorded(), [box(ContainerState.DEAD)], Remove(r(1)), id="dead: help it away"),
    pytest.param(recorded(), [box(ContainerState.REMOVING)], Remove(r(1)), id="being removed by hand"),
    pytest.param(recorded(), [], Record(Phase.STOPPED, "removed_outside"), id="removed by hand"),
    pytest.param(recorded(phase=Phase.STARTING, container_id=None, revision=0), [],
                 Record(Phase.STOPPED, "removed_outside"), id="removed by hand before it was ready"),
    # settled: nobody is brought back against anybody's will
    pytest.param(recorded(phase=Phase.STOPPED), [box(DOWN)], Rest(), id="stopped by hand stays stopped"),
    pytest.param(recorded(phase=Phase.STOPPED), [], Rest(), id="removed by hand stays removed"),
    pytest.param(recorded(phase=Phase.FAILED), [box(DOWN)], Rest(), id="failed stays down"),
    pytest.param(recorded(phase=Phase.FAILED), [box(UP)], Stop(r(1)), id="failed and up: no claim to run"),
    pytest.param(recorded(phase=Phase.FAILED), [box(CREATED)], Remove(r(1)), id="failed and never ran: thrown away"),
    pytest.param(recorded(phase=Phase.STOPPED), [box(UP)], Stop(r(1)), id="started by hand after a stop by hand"),
    # stop
    pytest.param(wanted(Desired.STOPPED), [], Record(Phase.STOPPED), id="stop before anything was made"),
    pytest.param(wanted(Desired.STOPPED), [box(CREATED)], Record(Phase.STOPPED), id="stop before the start"),
    pytest.param(recorded(Desired.STOPPED, **ASKED), [box(UP)], Stop(r(1)), id="stop"),
    pytest.param(recorded(Desired.STOPPED, **ASKED), [box(DOWN)], Record(Phase.STOPPED), id="seen down: stopped"),
    pytest.param(recorded(Desired.STOPPED, Phase.STOPPED), [box(DOWN)], Rest(), id="stopped"),
    pytest.param(recorded(Desired.STOPPED, Phase.STOPPED), [box(UP)], Stop(r(1)), id="up without its claim: stopped"),
    pytest.param(recorded(Desired.STOPPED, **ASKED), [box(UP), box(UP, 2)], Stop(r(2)), id="stop all that is up"),
    # remove
    pytest.param(recorded(Desired.REMOVED, **ASKED), [box(UP)], Stop(r(1)), id="remove: stop first"),
    pytest.param(recorded(Desired.REMOVED, **ASKED), [box(DOWN)], Remove(r(1)), id="remove: the container"),
    pytest.param(recorded(Desired.REMOVED, **ASKED), [box(CREATED)], Remove(r(1)), id="remove: one that never ran"),
    pytest.param(recorded(Desired.REMOVED, **ASKED), [box(DOWN), box(UP, 2)], Stop(r(2)), id="remove: all of them"),
    pytest.param(recorded(Desired.REMOVED, **ASKED), [], CleanUp(), id="remove: volume and images last"),
    pytest.param(recorded(Desired.REMOVED, Phase.REMOVED), [], Rest(), id="removed"),
    pytest.param(recorded(Desired.REMOVED, Phase.REMOVED), [box(UP)], Stop(r(1)), id="came back after the removal"),
])
def test_next_step(want: Wanted, containers: list[Container], expected: object) -> None:
    assert step(want, *containers) == expected


class TestMove:
    """A port was replaced: the container must be made anew, and the layer of one that ran is kept."""

    stopped = recorded(phase=Phase.STOPPED, **ASKED)

    def test_container_that_never_ran_is_thrown_away(self) -> None:
        assert step(wanted(), box(CREATED, ports=OTHER_PORTS)) == Remove(r(1))

    def test_after_it_the_first_revision_is_made_again(self) -> None:
        assert step(wanted(), image_ready=True) == Create(1, None)

    def test_container_that_ran_is_committed(self) -> None:
        assert step(self.stopped, box(DOWN, ports=OTHER_PORTS)) == Commit(r(1), private_image("test1", "abc", 2))

    def test_one_that_is_up_is_stopped_first(self) -> None:
        assert step(self.stopped, box(UP, ports=OTHER_PORTS)) == Stop(r(1))

    def test_new_one_is_made_from_the_commit(self) -> None:
        made = Create(2, private_image("test1", "abc", 2))
        assert step(self.stopped, box(DOWN, ports=OTHER_PORTS), image_ready=True) == made

    def test_new_one_starts_while_the_old_one_is_kept(self) -> None:
        assert step(self.stopped, box(DOWN, ports=OTHER_PORTS), box(CREATED, 2)) == Start(r(2))

    def test_old_one_that_somebody_started_is_stopped_before_the_new_one_starts(self) -> None:
        assert step(self.stopped, box(UP, ports=OTHER_PORTS), box(CREATED, 2)) == Stop(r(1))

    def test_old_one_that_somebody_started_is_stopped_before_the_new_one_is_ready(self) -> None:
        assert step(self.stopped, box(UP, ports=OTHER_PORTS), box(UP, 2)) == Stop(r(1))

    def test_old_one_is_kept_until_the_new_one_is_recorded_running(self) -> None:
        assert step(self.stopped, box(DOWN, ports=OTHER_PORTS), box(UP, 2)) == AwaitReady(r(2))

    def test_then_the_old_one_is_removed(self) -> None:
        running = recorded(revision=2, container_id="id-r2")
        assert step(running, box(DOWN, ports=OTHER_PORTS), box(UP, 2)) == Remove(r(1))

    def test_new_one_whose_port_is_taken_too_is_thrown_away_and_the_old_layer_kept(self) -> None:
        assert step(self.stopped, box(DOWN, ports=OTHER_PORTS), box(CREATED, 2, OTHER_PORTS)) == Remove(r(2))

    def test_second_move_commits_the_newest(self) -> None:
        containers = [box(DOWN, ports="ssh=1"), box(DOWN, 2, OTHER_PORTS)]
        assert step(self.stopped, *containers) == Commit(r(2), private_image("test1", "abc", 3))

    def test_revision_is_never_used_twice_after_a_removal_by_hand(self) -> None:
        gone = recorded(phase=Phase.STOPPED, revision=4, private_image="kept:r3", **ASKED)
        assert step(gone, image_ready=True) == Create(5, "kept:r3")

    def test_dead_one_is_not_committed(self) -> None:
        assert step(self.stopped, box(ContainerState.DEAD, ports=OTHER_PORTS)) == Remove(r(1))


HELD = {"gpus": ("GPU-a", "GPU-b")}
BOTH = "GPU-a,GPU-b"
GONE = [ContainerState.REMOVING, ContainerState.DEAD]


def card_box(state: ContainerState, revision: int = 1, gpus: str = BOTH) -> Container:
    return box(state, revision, gpus=gpus)


class TestCards:
    """They are given back when everything is down and nobody wants it to run, and before anything else is done."""

    to_stop = recorded(Desired.STOPPED, **ASKED, **HELD)
    to_remove = recorded(Desired.REMOVED, **ASKED, **HELD)
    ENDS = [
        pytest.param(to_stop, id="to be stopped"),
        pytest.param(recorded(Desired.STOPPED, Phase.STOPPED, **HELD), id="stopped"),
        pytest.param(to_remove, id="to be removed"),
        pytest.param(recorded(Desired.REMOVED, Phase.REMOVED, **HELD), id="removed"),
        pytest.param(recorded(phase=Phase.STOPPED, **HELD), id="stopped by hand"),
        pytest.param(recorded(phase=Phase.FAILED, **HELD), id="failed"),
    ]

    @pytest.mark.parametrize("want", ENDS)
    @pytest.mark.parametrize("containers", [
        [], [card_box(DOWN)], [card_box(CREATED)], [card_box(DOWN), card_box(DOWN, 2)]])
    def test_given_back_once_all_is_down(self, want: Wanted, containers: list[Container]) -> None:
        assert step(want, *containers) == ReleaseGpus()

    @pytest.mark.parametrize("want", ENDS)
    @pytest.mark.parametrize("state", [UP, ContainerState.PAUSED, ContainerState.RESTARTING])
    def test_never_while_one_is_up(self, want: Wanted, state: ContainerState) -> None:
        assert step(want, card_box(state), card_box(DOWN, 2)) == Stop(r(1))

    @pytest.mark.parametrize("want", ENDS)
    @pytest.mark.parametrize("state", GONE)
    def test_never_while_one_is_being_removed(self, want: Wanted, state: ContainerState) -> None:
        assert step(want, card_box(state), card_box(DOWN, 2)) == Remove(r(1))

    @pytest.mark.parametrize(("want", "containers", "expected"), [
        (to_stop, [card_box(DOWN)], Record(Phase.STOPPED)),
        (to_remove, [card_box(DOWN)], Remove(r(1))),
        (to_remove, [], CleanUp()),
        (recorded(phase=Phase.FAILED, **HELD), [card_box(CREATED)], Remove(r(1))),
        (recorded(phase=Phase.STOPPED, **HELD), [card_box(DOWN)], Rest()),
    ])
    def test_what_comes_after_it(self, want: Wanted, containers: list[Container], expected: object) -> None:
        assert step(replace(want, gpus=()), *containers) == expected

    @pytest.mark.parametrize("want", [
        wanted(**HELD), recorded(**HELD), recorded(phase=Phase.UNKNOWN, **HELD), recorded(phase=Phase.STARTING, **HELD),
        recorded(phase=Phase.STARTING, **RETRY, **HELD), recorded(phase=Phase.FAILED, **ASKED, **HELD)])
    @pytest.mark.parametrize("state", [None, *ContainerState])
    def test_never_while_it_is_to_run(self, want: Wanted, state: ContainerState | None) -> None:
        assert step(want, *([card_box(state)] if state else [])) != ReleaseGpus()

    def test_not_while_it_waits_to_try_again(self) -> None:
        want = replace(self.to_stop, attempted_generation=2, next_try_at=NOW + 5 * SECOND)
        assert step(want, card_box(DOWN)) == Rest(NOW + 5 * SECOND)


class TestOtherCards:
    """It got others at the start: the container is made anew, as when a port was replaced."""

    asked = recorded(phase=Phase.STOPPED, **ASKED, **HELD)

    @pytest.mark.parametrize("gpus", ["GPU-a", "GPU-a,GPU-c", "GPU-a,GPU-b,GPU-c", ""])
    def test_container_with_other_cards_is_committed(self, gpus: str) -> None:
        assert step(self.asked, card_box(DOWN, gpus=gpus)) == Commit(r(1), private_image("test1", "abc", 2))

    def test_then_made_anew(self) -> None:
        made = step(self.asked, card_box(DOWN, gpus="GPU-a"), image_ready=True)
        assert made == Create(2, private_image("test1", "abc", 2))

    def test_one_that_never_ran_is_thrown_away(self) -> None:
        assert step(wanted(**HELD), card_box(CREATED, gpus="GPU-a")) == Remove(r(1))

    def test_one_that_is_up_is_stopped(self) -> None:
        assert step(recorded(**HELD), card_box(UP, gpus="GPU-a")) == Stop(r(1))

    def test_one_of_a_workspace_without_cards_needs_no_label(self) -> None:
        without = box(UP, labels={key: value for key, value in box(UP).labels.items() if key != "berth.gpus"})
        assert step(recorded(), without) == Rest()

    def test_older_one_that_fits_again_is_not_taken_when_a_newer_one_ran(self) -> None:
        """What was done in the newer one would be lost."""
        containers = [card_box(DOWN), card_box(DOWN, 2, "GPU-c,GPU-d")]
        assert step(self.asked, *containers) == Commit(r(2), private_image("test1", "abc", 3))

    def test_older_one_that_fits_again_is_taken_when_the_newer_one_never_ran(self) -> None:
        assert step(self.asked, card_box(DOWN), card_box(CREATED, 2, "GPU-c,GPU-d")) == Start(r(1))


class TestTrespassers:
    def names(self, want: Wanted, *containers: Container) -> list[str]:
        return [one.name for one in trespassers(want, containers)]

    @pytest.mark.parametrize("gpus", [BOTH, "GPU-a", ""])
    def test_not_with_cards_that_it_holds(self, gpus: str) -> None:
        assert self.names(recorded(**HELD), card_box(UP, gpus=gpus)) == []

    @pytest.mark.parametrize("held", [(), ("GPU-a",), ("GPU-c", "GPU-d")])
    @pytest.mark.parametrize("state", [UP, ContainerState.PAUSED, ContainerState.RESTARTING])
    def test_with_any_that_it_does_not(self, held: tuple[str, ...], state: ContainerState) -> None:
        assert self.names(recorded(gpus=held), card_box(state)) == [r(1)]

    @pytest.mark.parametrize("state", [DOWN, CREATED, *GONE])
    def test_not_while_it_is_down(self, state: ContainerState) -> None:
        assert self.names(recorded(gpus=()), card_box(state)) == []

    def test_not_what_is_not_its_own(self) -> None:
        assert self.names(recorded(gpus=()), box(UP, gpus=BOTH, name="copied-labels", id="stranger")) == []

    def test_each_of_them(self) -> None:
        assert self.names(recorded(gpus=("GPU-a",)), card_box(UP), card_box(UP, 2), card_box(UP, 3, "GPU-a")) == [
            r(2), r(1)]


class TestNewestRevision:
    def test_of_two_that_fit_the_newest_counts(self) -> None:
        assert step(recorded(container_id="id-r2"), box(DOWN), box(UP, 2)) == Remove(r(1))

    def test_older_one_that_is_up_is_stopped_for_it(self) -> None:
        assert step(wanted(), box(UP), box(CREATED, 2)) == Stop(r(1))


class TestWaiting:
    waiting = wanted(attempted_generation=1, next_try_at=NOW + 5 * SECOND)

    def test_rests_until_the_next_try(self) -> None:
        assert step(self.waiting) == Rest(NOW + 5 * SECOND)

    def test_goes_on_when_the_time_has_come(self) -> None:
        assert step(replace(self.waiting, next_try_at=NOW)) == EnsureImage()

    @pytest.mark.parametrize("desired", [Desired.STOPPED, Desired.REMOVED])
    def test_stop_and_removal_wait_too(self, desired: Desired) -> None:
        assert step(replace(self.waiting, desired=desired), box(UP)) == Rest(NOW + 5 * SECOND)

    def test_new_intent_does_not_wait_for_the_old_ones_back_off(self) -> None:
        assert step(replace(self.waiting, generation=2, desired=Desired.STOPPED)) == Record(Phase.STOPPED)

    def test_clock_that_was_set_back_delays_nothing(self) -> None:
        assert step(replace(self.waiting, next_try_at=NOW + LONGEST_WAIT + SECOND)) == EnsureImage()


class TestOwnContainers:
    want = recorded()

    def own(self, *containers: Container) -> list[str]:
        return [one.id for one in own_containers(self.want, containers)]

    def test_newest_first(self) -> None:
        assert self.own(box(DOWN), box(UP, 10), box(DOWN, 2)) == ["id-r10", "id-r2", "id-r1"]

    @pytest.mark.parametrize("label", ["berth.instance", "berth.workspace", "berth.revision"])
    @pytest.mark.parametrize("value", ["other", "", None])
    def test_wrong_label_is_not_ours(self, label: str, value: str | None) -> None:
        labels = {**box(UP).labels, label: value} if value is not None else {
            key: kept for key, kept in box(UP).labels.items() if key != label}
        assert self.own(box(UP, labels=labels)) == []

    @pytest.mark.parametrize("revision", ["01", "+1", "1 ", "١", "-1"])
    def test_revision_that_berth_would_not_write_is_not_ours(self, revision: str) -> None:
        assert self.own(box(UP, labels={**box(UP).labels, "berth.revision": revision})) == []

    def test_copied_labels_under_another_name_are_not_ours(self) -> None:
        assert self.own(box(UP, name="mine", id="stranger")) == []

    def test_look_alike_name_without_labels_is_not_ours(self) -> None:
        assert self.own(box(UP, labels={}, id="stranger")) == []

    def test_recorded_container_renamed_by_hand_is_still_ours(self) -> None:
        assert self.own(box(UP, name="renamed")) == ["id-r1"]

    def test_recorded_id_without_the_labels_is_not_ours(self) -> None:
        assert self.own(box(UP, labels={})) == []


def test_crash_between_any_two_steps_resumes() -> None:
    """Carried out with nothing recorded: every step changes what is seen, and the next plan goes on from there."""
    want, seen, done = wanted(), Seen(()), []
    for _ in range(10):
        seen = Seen(seen.containers)            # a new agent knows of no image that was made ready
        following = plan(want, seen, now=NOW)
        done.append(type(following).__name__)
        if isinstance(following, EnsureImage):
            following = plan(want, replace(seen, image_ready=True), now=NOW)
        if isinstance(following, Create):
            seen = seen.with_container(box(CREATED, following.revision))
        elif isinstance(following, Start):
            seen = seen.with_state(following.name, UP)
        else:
            break
    assert done == ["EnsureImage", "Start", "AwaitReady"]
