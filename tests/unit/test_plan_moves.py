"""What makes a container anew, in which order, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from boxes import (
    ASKED,
    CREATED,
    DOWN,
    HELD,
    LIMITS,
    OTHER_PORTS,
    SHAPE,
    UP,
    box,
    card_box,
    r,
    recorded,
    step,
    unlabelled,
    wanted,
)

from webapp.domain.container import Container, ContainerState
from webapp.domain.plan import (
    AwaitReady,
    Commit,
    Create,
    ReleaseGpus,
    Remove,
    Rest,
    Start,
    Stop,
    Update,
    Weigh,
    private_image,
    trespassers,
)
from webapp.domain.workspace import Desired, Phase


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
        assert step(recorded(), unlabelled(box(UP), "berth.gpus")) == Rest()

    def test_older_one_that_fits_again_is_not_taken_when_a_newer_one_ran(self) -> None:
        """What was done in the newer one would be lost."""
        containers = [card_box(DOWN), card_box(DOWN, 2, "GPU-c,GPU-d")]
        assert step(self.asked, *containers) == Commit(r(2), private_image("test1", "abc", 3))

    def test_older_one_that_fits_again_is_taken_when_the_newer_one_never_ran(self) -> None:
        assert step(self.asked, card_box(DOWN), card_box(CREATED, 2, "GPU-c,GPU-d")) == Start(r(1))


class TestWeighing:
    """Before anything is stopped or written for a move."""

    moving = recorded(phase=Phase.STOPPED, **ASKED)

    @pytest.mark.parametrize("state", [UP, DOWN, ContainerState.PAUSED])
    def test_comes_first(self, state: ContainerState) -> None:
        assert step(self.moving, box(state, ports=OTHER_PORTS), is_weighed=False) == Weigh(r(1))

    def test_weighed_is_the_newest(self) -> None:
        containers = [box(DOWN, ports="ssh=1"), box(DOWN, 2, OTHER_PORTS)]
        assert step(self.moving, *containers, is_weighed=False) == Weigh(r(2))

    def test_not_what_is_kept_already(self) -> None:
        made = step(self.moving, box(DOWN, ports=OTHER_PORTS), image_ready=True, is_weighed=False)
        assert made == Create(2, private_image("test1", "abc", 2))

    @pytest.mark.parametrize("containers", [[], [box(CREATED, ports=OTHER_PORTS)], [box(UP)], [box(DOWN)]])
    def test_not_where_nothing_is_to_be_kept(self, containers: list[Container]) -> None:
        assert not isinstance(step(self.moving, *containers, is_weighed=False), Weigh)


class TestOtherShape:
    """Shared memory and mounts: made anew, as for other cards."""

    asked = recorded(**ASKED)
    before = box(UP, shape="shm=2 mounts=v1:ro")

    def test_running_one_is_stopped_committed_and_made_anew(self) -> None:
        assert step(self.asked, self.before, is_weighed=False) == Weigh(r(1))
        assert step(self.asked, self.before) == Stop(r(1))
        down = replace(self.before, state=DOWN)
        assert step(self.asked, down) == Commit(r(1), private_image("test1", "abc", 2))

    def test_new_one_is_had_ready_before_the_old_one_goes(self) -> None:
        down = replace(self.before, state=DOWN)
        assert step(self.asked, down, box(CREATED, 2)) == Start(r(2))
        assert step(self.asked, down, box(UP, 2)) == AwaitReady(r(2))
        assert step(recorded(revision=2, container_id="id-r2"), down, box(UP, 2)) == Remove(r(1))

    def test_one_from_before_the_label_has_the_shape_of_the_upgrade(self) -> None:
        older = unlabelled(box(UP), "berth.shape", "berth.limits")
        assert step(recorded(shape_unlabelled=SHAPE), older) == Rest()
        assert step(replace(self.asked, shape_unlabelled="shm=2 mounts="), older) == Stop(r(1))

    def test_one_of_which_nobody_knows_stays(self) -> None:
        assert step(recorded(), unlabelled(box(UP), "berth.shape", "berth.limits")) == Rest()


class TestLimits:
    """CPU and memory make no container anew."""

    other = box(UP, limits="cpu=100 memory=8")
    applied = ("id-r1", LIMITS)

    def test_one_that_runs_gets_them_at_once(self) -> None:
        assert step(recorded(**ASKED), self.other) == Update(r(1))

    def test_then_it_goes_on(self) -> None:
        assert step(recorded(applied_limits=self.applied, **ASKED), self.other) == AwaitReady(r(1))
        assert step(recorded(applied_limits=self.applied), self.other) == Rest()

    @pytest.mark.parametrize("state", [DOWN, CREATED])
    def test_one_that_is_down_gets_them_before_it_starts(self, state: ContainerState) -> None:
        want = recorded(phase=Phase.STOPPED, **ASKED)
        assert step(want, replace(self.other, state=state)) == Update(r(1))
        assert step(replace(want, applied_limits=self.applied), replace(self.other, state=state)) == Start(r(1))

    def test_what_was_changed_counts_for_that_container_alone(self) -> None:
        want = recorded(applied_limits=("id-r1", "cpu=1 memory=1"), **ASKED)
        assert step(want, box(UP, 2)) == AwaitReady(r(2))
        assert step(want, box(UP)) == Update(r(1))

    def test_rival_is_stopped_first(self) -> None:
        assert step(recorded(**ASKED), box(UP, 2), replace(self.other, state=UP)) == Stop(r(1))

    def test_one_from_before_the_label_is_left_alone_until_somebody_wishes_something(self) -> None:
        older = unlabelled(box(UP), "berth.limits")
        assert step(recorded(), older) == Rest()
        assert step(recorded(**ASKED), older) == Update(r(1))
        assert step(recorded(applied_limits=self.applied, **ASKED), older) == AwaitReady(r(1))

    def test_made_anew_it_needs_no_update(self) -> None:
        assert step(recorded(**ASKED), box(UP, limits="cpu=1 memory=1", shape="shm=9 mounts=")) == Stop(r(1))


class TestSpareCards:
    """While it moves to others it has claims on both; the old ones go when the new container runs alone."""

    moving = {"gpus": ("GPU-c",), "claimed": ("GPU-a", "GPU-c")}
    moved = recorded(revision=2, container_id="id-r2", **moving)

    def test_container_has_those_that_it_is_to_have(self) -> None:
        assert step(recorded(**ASKED, **self.moving), card_box(UP, gpus="GPU-a")) == Stop(r(1))
        assert step(recorded(**ASKED, **self.moving), card_box(CREATED, gpus="GPU-c")) == Start(r(1))

    def test_neither_trespasses(self) -> None:
        both = (card_box(UP, gpus="GPU-a"), card_box(UP, 2, gpus="GPU-c"))
        assert trespassers(recorded(**self.moving), both) == ()

    def test_kept_while_the_old_container_is_there(self) -> None:
        assert step(self.moved, card_box(DOWN, gpus="GPU-a"), card_box(UP, 2, gpus="GPU-c")) == Remove(r(1))

    def test_kept_until_the_new_one_is_recorded(self) -> None:
        assert step(recorded(**ASKED, **self.moving), card_box(UP, 2, gpus="GPU-c")) == AwaitReady(r(2))

    def test_then_given_back(self) -> None:
        assert step(self.moved, card_box(UP, 2, gpus="GPU-c")) == ReleaseGpus(keep=("GPU-c",))

    def test_without_cards_all_are(self) -> None:
        without = recorded(revision=2, container_id="id-r2", gpus=(), claimed=("GPU-a",))
        assert step(without, card_box(UP, 2, gpus="")) == ReleaseGpus(keep=())

    def test_one_that_is_stopped_meanwhile_gives_back_all(self) -> None:
        want = recorded(Desired.STOPPED, **ASKED, **self.moving)
        assert step(want, card_box(DOWN, gpus="GPU-a"), card_box(DOWN, 2, gpus="GPU-c")) == ReleaseGpus()
