"""The engine's twin in memory: the contract, and its knobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from contract import EngineContract
from contract_gpus import GpusContract
from contract_lab import Spec, actions, detail_of, running

from webapp.domain.container import ImageFacts, PullProgress
from webapp.engines.fake import FakeEngine
from webapp.engines.fake_state import FakeMachine
from webapp.errors import EngineUnreachable


class FakeLab:
    instance = "test1"
    other_instance = "other1"
    committed = "berth-test/committed:1"
    image = "berth-test/tiny:1"
    image_with_volume = "berth-test/tiny-with-volume:1"
    pulled = "team/pulled:1"

    def __init__(self) -> None:
        self.machine = FakeMachine()
        self.machine.add_image(self.image, files={"/only-in-image": b"here"})
        self.machine.add_image(self.image_with_volume, volumes=("/data",))
        self.machine.pull_script = [PullProgress(0, None, 0, 1), PullProgress(100, 100, 1, 1)]
        self.move_tag()
        self.machine.on_start = lambda container: setattr(container, "log", "ready\n")
        self.engine = FakeEngine(instance=self.instance, host="fake", machine=self.machine)
        self.other_engine = FakeEngine(instance=self.other_instance, host="fake", machine=self.machine)
        self._next_port = 20000

    def move_tag(self) -> str:
        former = self.machine.registry.get(self.pulled)
        id_ = self.machine.new_id()
        self.machine.registry[self.pulled] = ImageFacts(
            f"sha256:{id_}", 1, "amd64", (), {}, digests=(f"team/pulled@sha256:{id_}",))
        if former is None:
            return ""
        repository, _, digest = former.digests[0].partition("@")
        self.machine.registry[f"{repository}@{digest}"] = former
        return digest

    @contextmanager
    def listen(self, port: int) -> Iterator[None]:
        self.engine.taken_ports.add(port)
        yield
        self.engine.taken_ports.discard(port)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def finish(self, name: str, exit_code: int) -> None:
        self.engine.end(name, exit_code)

    def run_out_of_memory(self, name: str) -> None:
        self.engine.end(name, 137, oom=True)

    def child_out_of_memory(self, name: str) -> None:
        self.engine.oom_child(name)

    def say(self, name: str, text: str) -> None:
        self.engine.print_log(name, text)

    def remove_by_hand(self, name: str) -> None:
        if name in self.machine.foreign:
            self.engine.end_foreign(name)
        else:
            self.engine.remove_by_hand(name)

    def run_foreign(self, name: str, cards: Sequence[str], labels: Mapping[str, str] | None = None) -> None:
        self.engine.run_foreign(name, *sorted(cards), labels=labels)


@pytest.fixture
def lab() -> FakeLab:
    return FakeLab()


class TestFakeEngine(EngineContract, GpusContract):
    pass


def test_a_failure_before_the_act_leaves_nothing(lab: FakeLab, spec: Spec) -> None:
    lab.engine.fail_next("create", EngineUnreachable(host="fake", detail="gone"))

    with pytest.raises(EngineUnreachable):
        lab.engine.create(spec())

    assert lab.engine.list() == []
    assert lab.engine.create(spec())


def test_a_lost_answer_leaves_the_act_done(lab: FakeLab, spec: Spec) -> None:
    lab.engine.fail_next("create", EngineUnreachable(host="fake", detail="lost"), after=True)

    with pytest.raises(EngineUnreachable):
        lab.engine.create(spec())

    assert [row.name for row in lab.engine.list()] == [spec().name]


def test_an_engine_that_is_down_answers_nothing(lab: FakeLab) -> None:
    lab.engine.down = True

    with pytest.raises(EngineUnreachable):
        lab.engine.list()


def test_calls_are_written_down(lab: FakeLab, spec: Spec) -> None:
    lab.engine.calls.clear()
    lab.engine.start(lab.engine.create(spec()))

    assert [call[0] for call in lab.engine.calls] == ["create", "start"]


def test_a_pull_reports_its_script_and_leaves_the_image(lab: FakeLab) -> None:
    facts = ImageFacts("sha256:1", 100, "amd64", (), {})
    lab.machine.registry["team/image:1"] = facts
    progress: list[PullProgress] = []

    assert lab.engine.ensure_image("team/image:1", progress.append) == facts
    assert progress == lab.machine.pull_script
    assert lab.engine.image("team/image:1") == facts


def test_an_orderly_restart_ends_containers_without_a_trace(lab: FakeLab, spec: Spec) -> None:
    since = datetime.now(UTC)
    id_ = running(lab, spec())

    lab.engine.restart_engine()

    assert detail_of(lab, id_).exit_code == 143 and actions(lab, since) == set()
    _assert_ended_before_engine_began(lab, id_)


def test_a_killed_engine_leaves_what_looks_like_a_stop_by_hand(lab: FakeLab, spec: Spec) -> None:
    since = datetime.now(UTC)
    id_ = running(lab, spec())

    lab.engine.restart_engine(orderly=False)

    assert actions(lab, since) == {"kill", "die", "stop"}
    _assert_ended_before_engine_began(lab, id_)


def _assert_ended_before_engine_began(lab: FakeLab, id_: str) -> None:
    began, detail = lab.engine.started_at(), detail_of(lab, id_)
    assert began is not None and detail.finished_at is not None and detail.finished_at < began
