"""What differs between rows and containers, what may be decided about it, and what each decision comes to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from unit.boxes import CREATED, DOWN, HELD, NOW, OTHER_PORTS, UP, box, recorded, unlabelled, wanted

from webapp.domain import hold, hold_words
from webapp.domain.container import Container, ContainerDetail, FolderMount, Making, PublishedPort, VolumeMount
from webapp.domain.hold import Decision, Difference, Finding, FindingKind, compare
from webapp.domain.plan import Wanted
from webapp.domain.workspace import Desired, Phase, Service

MOUNTS = (VolumeMount("berth-test1-home-m1", "/home/alice"), VolumeMount("berth-test1-v-v1", "/data/x", True))
PORTS = (PublishedPort(2222, "127.0.0.1", 20000), PublishedPort(8888, "127.0.0.1", 20001))


def shown(container: Container, **changes: Any) -> ContainerDetail:
    """As an inspect shows it: with two cores and 8 bytes, like the row's limits."""
    making = Making("berth/workspace:1", 10001, {"USER": "alice", "BERTH_WORKSPACE": "run-1", "BERTH_JUPYTER": "1"},
                    MOUNTS, 1, 4096)
    ports = PORTS if container.labels.get("berth.ports") != OTHER_PORTS else (
        PublishedPort(2222, "127.0.0.1", 20777), PORTS[1])
    detail = ContainerDetail(container, None, False, "", NOW, None if container.is_up else NOW, ports,
                             cpu_millis=2000, memory_bytes=8, making=making)
    return replace(detail, **changes)


def found(row: Wanted | None, *containers: Container | ContainerDetail, asked: tuple[str, ...] = ()) -> list[Finding]:
    details = [one if isinstance(one, ContainerDetail) else shown(one) for one in containers]
    return list(compare([row] if row else [], details, instance="test1", asked=asked))


def kinds(row: Wanted | None, *containers: Container | ContainerDetail, asked: tuple[str, ...] = ()) -> list[str]:
    return [str(finding.kind) for finding in found(row, *containers, asked=asked)]


def differs(row: Wanted, *containers: Container | ContainerDetail) -> list[str]:
    [finding] = found(row, *containers)
    return list(finding.facts["differs"])


STOPPED = recorded(Desired.STOPPED, Phase.STOPPED)
FAILED = recorded(Desired.RUNNING, Phase.FAILED)
REMOVING = recorded(Desired.REMOVED, Phase.REMOVING, generation=2)
REMOVED = recorded(Desired.REMOVED, Phase.REMOVED, container_id=None)
HELD_CARDS = recorded(**HELD)
BOTH = "GPU-a,GPU-b"


@pytest.mark.parametrize(("row", "containers", "kind"), [
    (recorded(), [box(UP)], None),
    (recorded(Desired.RUNNING, Phase.STARTING, container_id=None, revision=0), [box(UP)], None),
    (HELD_CARDS, [box(UP, gpus=BOTH)], None),
    (STOPPED, [box(DOWN)], None),
    (FAILED, [box(DOWN)], None),
    (recorded(Desired.RUNNING, Phase.FAILED, container_id=None), [], None),
    (REMOVING, [], None),
    (REMOVING, [box(DOWN)], None),
    (REMOVED, [], None),
    (recorded(), [box(DOWN)], FindingKind.DOWN_BUT_WANTED),
    (recorded(), [box(CREATED)], FindingKind.DOWN_BUT_WANTED),
    (wanted(), [], FindingKind.GONE),
    (recorded(), [], FindingKind.GONE),
    (STOPPED, [], FindingKind.GONE),
    (STOPPED, [box(UP)], FindingKind.RUNS_BUT_STOPPED),
    (FAILED, [box(UP)], FindingKind.RUNS_BUT_STOPPED),
    (REMOVING, [box(UP)], FindingKind.RUNS_BUT_STOPPED),
    (STOPPED, [box(DOWN, 2), box(DOWN)], FindingKind.MOVED),
    (recorded(), [box(UP, 2), box(DOWN)], FindingKind.MOVED),
    (recorded(), [box(UP, ports=OTHER_PORTS)], FindingKind.MOVED),
    (recorded(), [box(UP, shape="shm=2 mounts=")], FindingKind.MOVED),
    (recorded(), [box(UP, gpus=BOTH)], FindingKind.CARDS),
    (HELD_CARDS, [box(UP, gpus="GPU-a")], FindingKind.CARDS),
    (HELD_CARDS, [box(UP, 2, gpus="GPU-c", ports=OTHER_PORTS)], FindingKind.CARDS),
    (REMOVED, [box(DOWN)], FindingKind.UNKNOWN_CONTAINER),
    (None, [box(UP)], FindingKind.UNKNOWN_CONTAINER),
    (None, [box(DOWN)], FindingKind.UNKNOWN_CONTAINER),
])
def test_kind_of_a_difference(row: Wanted | None, containers: list[Container], kind: FindingKind | None) -> None:
    assert kinds(row, *containers) == ([] if kind is None else [kind])


def test_limits_are_those_of_now_and_not_those_it_was_made_with() -> None:
    assert differs(recorded(), shown(box(UP), memory_bytes=16)) == [Difference.LIMITS]
    assert kinds(recorded(limits="cpu=4000 memory=16"), shown(box(UP), cpu_millis=4000, memory_bytes=16)) == []


def test_limits_of_a_stopped_one_are_told_too() -> None:
    """Its label says what it was made with, and the next start would go by that."""
    assert differs(STOPPED, shown(box(DOWN), memory_bytes=16)) == [Difference.LIMITS]


def test_container_of_before_the_label_of_shapes_is_as_its_row_says() -> None:
    older = unlabelled(box(UP), "berth.shape")
    assert kinds(recorded(shape_unlabelled=recorded().shape), older) == []
    assert differs(recorded(shape_unlabelled="shm=2 mounts="), older) == [Difference.SHAPE]


def test_card_that_the_engine_was_asked_for_counts_whatever_the_label_says() -> None:
    assert kinds(recorded(), shown(box(UP), gpus=("GPU-x",))) == [FindingKind.CARDS]


@pytest.mark.parametrize("container", [
    box(UP, name="somebodys"),
    replace(box(UP), labels={**box(UP).labels, "berth.instance": "other"}),
    unlabelled(box(UP), "berth.revision"),
])
def test_labels_alone_make_nothing_ours(container: Container) -> None:
    assert kinds(None, container) == []


@pytest.mark.parametrize(("row", "containers", "kind"), [
    (wanted(), [], None),                                           # launched a moment ago
    (STOPPED, [box(UP)], None),                                     # to be stopped
    (recorded(generation=2), [box(DOWN)], None),                    # to be started
    (recorded(generation=2), [], FindingKind.GONE),
    (recorded(generation=2), [box(UP, 2, ports=OTHER_PORTS)], FindingKind.MOVED),
])
def test_what_was_asked_for_since_the_hold_is_no_difference(
    row: Wanted, containers: list[Container], kind: FindingKind | None,
) -> None:
    assert kinds(row, *containers, asked=("abc",)) == ([] if kind is None else [kind])


def test_what_harms_others_comes_first() -> None:
    def of(name: str, container: Container) -> Container:
        return replace(container, id=f"id-{name}", name=container.name.replace("abc", name),
                       labels={**container.labels, "berth.workspace": name})

    rows = [replace(recorded(), workspace_id="a", container_id="id-a"),
            replace(STOPPED, workspace_id="b", container_id="id-b"),
            replace(recorded(), workspace_id="c", container_id="id-c")]
    containers = [of("a", box(DOWN)), of("b", box(UP)), of("c", box(UP, gpus=BOTH)), of("d", box(UP))]
    listed = compare(rows, [shown(one) for one in containers], instance="test1")
    assert [finding.workspace_id for finding in listed] == ["c", "b", "d", "a"]


class TestTruth:
    def truth(self, *containers: Container | ContainerDetail, row: Wanted | None = None) -> hold.Truth:
        [finding] = found(row, *containers)
        truth = hold.truth_in(json.loads(json.dumps(finding.facts)))
        assert truth is not None
        return truth

    def test_holds_what_a_row_needs(self) -> None:
        label = "shm=1 mounts=v1:ro,v2:rw"
        truth = self.truth(box(UP, 3, gpus=BOTH, shape=label))
        assert (truth.revision, truth.is_up, truth.since) == (3, True, NOW.isoformat())
        assert (truth.name, truth.username, truth.uid, truth.home_of) == ("run-1", "alice", 10001, "m1")
        assert truth.ports == {"ssh": 20000, "jupyter": 20001} and truth.gpus == ["GPU-a", "GPU-b"]
        assert (truth.cpu_millis, truth.memory_bytes, truth.shm_bytes, truth.pids) == (2000, 8, 1, 4096)
        assert truth.volumes == [["v1", True], ["v2", False]] and truth.folders == [] and truth.jupyter

    def test_without_the_label_mounts_are_read_from_it(self) -> None:
        making = Making("x", 1, {}, (*MOUNTS, FolderMount("/srv/x", "/data/y")), 1, 1)
        truth = self.truth(shown(unlabelled(box(UP), "berth.shape"), making=making))
        assert (truth.volumes, truth.folders) == ([["v1", True]], [["/srv/x", False]])

    def test_image_of_a_move_is_known_as_private(self) -> None:
        making = Making("berth-test1/w-abc:r2", 1, {}, MOUNTS, 1, 1)
        labels = {**box(UP, 2).labels, "berth.origin": "berth/workspace:1"}
        truth = self.truth(shown(replace(box(UP, 2), labels=labels), making=making))
        assert (truth.is_private, truth.image, truth.origin) == (True, "berth-test1/w-abc:r2", "berth/workspace:1")

    def test_what_is_up_counts_before_what_is_newer(self) -> None:
        assert self.truth(box(CREATED, 3), box(UP, 2), box(DOWN, 1)).revision == 2
        assert self.truth(box(CREATED, 3), box(DOWN, 2), box(DOWN, 1)).revision == 2
        assert self.truth(box(CREATED, 3)).revision == 3

    def test_engine_that_says_little_breaks_nothing(self) -> None:
        truth = self.truth(ContainerDetail(box(UP), None, False, "", None, None, ()))
        assert (truth.uid, truth.home_of, truth.since, truth.ports) == (None, None, None, {})


class TestMark:
    def test_changes_with_what_runs_and_with_the_row(self) -> None:
        marks = {found(row, one)[0].mark for row, one in [
            (STOPPED, shown(box(UP))), (STOPPED, shown(box(UP), memory_bytes=9)), (STOPPED, shown(box(UP, 2))),
            (FAILED, shown(box(UP)))]}
        assert len(marks) == 4

    def test_is_the_same_after_a_database(self) -> None:
        [finding] = found(STOPPED, box(UP, gpus=BOTH))
        written = json.loads(json.dumps({**finding.facts, "decided_before": "keep"}))
        assert hold.mark(str(finding.kind), written) == finding.mark


@pytest.mark.parametrize(("row", "container", "decisions"), [
    (STOPPED, box(UP), "adopt keep"),
    (recorded(), box(UP, 2), "adopt keep"),
    (recorded(), box(DOWN), "adopt keep forget"),
    (STOPPED, box(DOWN, 2), "adopt keep forget"),
    (recorded(), None, "keep forget"),
    (None, box(UP), "adopt forget"),
])
def test_what_runs_is_never_let_go_but_by_leaving_it_alone(
    row: Wanted | None, container: Container | None, decisions: str,
) -> None:
    [finding] = found(row, *filter(None, [container]))
    assert " ".join(hold.choices(finding.kind, finding.facts)) == decisions


@pytest.mark.parametrize(("row", "container", "decision", "said"), [
    (STOPPED, box(UP), "keep", "will be stopped. What is in it stays"),
    (REMOVING, box(UP), "keep", "stopped and removed"),
    (STOPPED, box(UP), "adopt", "goes on as it runs"),
    (recorded(), box(DOWN), "keep", "started again"),
    (recorded(), box(DOWN), "adopt", "stays stopped"),
    (recorded(), box(DOWN), "forget", "stopped container is left alone"),
    (recorded(), None, "keep", "made anew and started"),
    (STOPPED, None, "keep", "in the list as stopped"),
    (STOPPED, None, "forget", "counts as removed"),
    (recorded(), box(UP, 2), "keep", "nothing in it changes"),
    (recorded(), box(UP, ports=OTHER_PORTS), "keep", "made anew as the database says"),
    (recorded(), box(UP, gpus=BOTH), "keep", "made anew as the database says"),
    (STOPPED, box(DOWN, 2), "keep", "its next start goes by the database"),
    (None, box(UP), "adopt", "becomes a workspace again, and goes on"),
    (None, box(DOWN), "adopt", "becomes a stopped workspace"),
    (None, box(UP), "forget", "never touches it."),
    (None, box(UP, gpus=BOTH), "forget", "its GPUs stay in use"),
])
def test_each_decision_says_what_it_comes_to(
    row: Wanted | None, container: Container | None, decision: str, said: str,
) -> None:
    [finding] = found(row, *filter(None, [container]))
    assert said in hold_words.consequence(finding.kind, decision, finding.facts)


def test_other_limits_are_given_back_while_it_runs() -> None:
    [finding] = found(recorded(), shown(box(UP), cpu_millis=4000))
    assert "gets the CPU and memory" in hold_words.consequence(finding.kind, Decision.KEEP, finding.facts)


def test_every_kind_and_decision_has_a_name() -> None:
    assert set(hold_words.TITLES) == set(FindingKind) and set(hold_words.DECISIONS) == set(Decision)
    assert set(hold_words.DIFFERENCES) == set(Difference)


def test_ports_are_compared_by_service() -> None:
    row = recorded(ports={Service.SSH: 20001, Service.JUPYTER: 20000})
    assert differs(row, box(UP)) == [Difference.PORTS]
