"""The rules of a workspace's life, as a table: (what is wanted, what is seen) → the one next step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from boxes import (
    ASKED,
    BOTH,
    CREATED,
    DOWN,
    GONE,
    HELD,
    NOW,
    RETRY,
    SECOND,
    UP,
    box,
    card_box,
    r,
    recorded,
    step,
    wanted,
)

from webapp.domain.container import Container, ContainerState
from webapp.domain.plan import (
    LONGEST_WAIT,
    AwaitReady,
    CleanUp,
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
    own_containers,
    plan,
    trespassers,
)
from webapp.domain.workspace import Desired, Phase


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
        assert step(replace(want, gpus=(), claimed=()), *containers) == expected

    @pytest.mark.parametrize("want", [
        wanted(**HELD), recorded(**HELD), recorded(phase=Phase.UNKNOWN, **HELD), recorded(phase=Phase.STARTING, **HELD),
        recorded(phase=Phase.STARTING, **RETRY, **HELD), recorded(phase=Phase.FAILED, **ASKED, **HELD)])
    @pytest.mark.parametrize("state", [None, *ContainerState])
    def test_never_while_it_is_to_run(self, want: Wanted, state: ContainerState | None) -> None:
        assert step(want, *([card_box(state)] if state else [])) != ReleaseGpus()

    def test_not_while_it_waits_to_try_again(self) -> None:
        want = replace(self.to_stop, attempted_generation=2, next_try_at=NOW + 5 * SECOND)
        assert step(want, card_box(DOWN)) == Rest(NOW + 5 * SECOND)


class TestTrespassers:
    def names(self, want: Wanted, *containers: Container) -> list[str]:
        return [one.name for one in trespassers(want, containers)]

    @pytest.mark.parametrize("gpus", [BOTH, "GPU-a", ""])
    def test_not_with_cards_that_it_holds(self, gpus: str) -> None:
        assert self.names(recorded(**HELD), card_box(UP, gpus=gpus)) == []

    @pytest.mark.parametrize("held", [(), ("GPU-a",), ("GPU-c", "GPU-d")])
    @pytest.mark.parametrize("state", [UP, ContainerState.PAUSED, ContainerState.RESTARTING])
    def test_with_any_that_it_does_not(self, held: tuple[str, ...], state: ContainerState) -> None:
        assert self.names(recorded(claimed=held), card_box(state)) == [r(1)]

    @pytest.mark.parametrize("state", [DOWN, CREATED, *GONE])
    def test_not_while_it_is_down(self, state: ContainerState) -> None:
        assert self.names(recorded(claimed=()), card_box(state)) == []

    def test_not_what_is_not_its_own(self) -> None:
        assert self.names(recorded(claimed=()), box(UP, gpus=BOTH, name="copied-labels", id="stranger")) == []

    def test_each_of_them(self) -> None:
        assert self.names(recorded(claimed=("GPU-a",)), card_box(UP), card_box(UP, 2), card_box(UP, 3, "GPU-a")) == [
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
