"""Cards by CDI names on an engine that lists them: containers get what was asked for, by name and by that way alone.

promises.md 30 and 32. That a container made otherwise works there too, tests/engine/test_gpus.py shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import docker
import pytest
from engine.contract_lab import Spec, eventually
from faults.house import Ground
from faults.toolkit import Toolkit

from webapp.domain.container import ContainerSpec, ContainerState, GpuAccess
from webapp.engines.docker import DockerEngine
from webapp.engines.docker.gpus import CDI_KIND, cdi_gpus
from webapp.errors import GpusRefused

pytestmark = pytest.mark.docker

UNKNOWN = "GPU-51e1a7ed-0000-0000-0000-000000000000"
CARD = re.compile(r"(?:GPU|MIG)-[0-9a-f-]{36}")
EVERYTHING = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0,1", "BERTH_SIMULATED_GPUS": "all"}


@dataclass(frozen=True)
class CdiLab:
    engine: DockerEngine
    instance: str
    client: docker.DockerClient
    toolkit: Toolkit
    image: str          # it says NVIDIA_VISIBLE_DEVICES=all

    def running(self, spec: ContainerSpec) -> str:
        id_ = self.engine.create(spec)
        self.engine.start(id_)
        return id_

    def shown_inside(self, id_: str) -> tuple[str, ...]:
        return tuple(sorted(CARD.findall(self.engine.exec(id_, ["nvidia-smi", "-L"], deadline_seconds=20).output)))

    def known(self) -> frozenset[str]:
        return cdi_gpus(self.client.api.info())


@pytest.fixture
def lab(ground: Ground, image_with_python: str, instance: str, cards: Toolkit) -> Iterator[CdiLab]:
    engine = DockerEngine(ground.url, instance=instance, host="gpu1")
    engine.prepare()
    lab = CdiLab(engine, instance, ground.docker, cards, image_with_python)
    eventually(lambda: lab.known() >= set(cards.uuids))
    yield lab
    engine.close()


@pytest.fixture
def spec(lab: CdiLab) -> Spec:
    return Spec(lab)  # type: ignore[arg-type]


def test_matrix_of_requests_and_people(lab: CdiLab, spec: Spec) -> None:
    [part, *_] = sorted(uuid for uuid in lab.known() if uuid.startswith("MIG-"))
    two = tuple(sorted(lab.toolkit.uuids[1:3]))
    for number, (uuids, person) in enumerate(product([(), two[:1], two, (part,)], [{}, EVERYTHING])):
        id_ = lab.running(spec(str(number), gpus=GpuAccess(uuids), environment=person))
        found = lab.client.api.inspect_container(id_)
        said = dict(line.partition("=")[::2] for line in found["Config"]["Env"])
        requests = found["HostConfig"]["DeviceRequests"] or []

        assert lab.toolkit.given(id_) == ([",".join(uuids)] if uuids else [])
        assert said["NVIDIA_VISIBLE_DEVICES"] == "void" and not {"CUDA_VISIBLE_DEVICES", *EVERYTHING} & (
            set(said) - {"NVIDIA_VISIBLE_DEVICES"})
        assert [(one["Driver"], one["DeviceIDs"]) for one in requests] == (
            [("cdi", [f"{CDI_KIND}{uuid}" for uuid in uuids])] if uuids else [])
        detail = lab.engine.inspect(id_)
        assert detail is not None and detail.gpus == uuids
        if part not in uuids:       # -L names the card of a slice, too
            assert lab.shown_inside(id_) == uuids


def test_container_started_again_by_hand_has_the_same(lab: CdiLab, spec: Spec) -> None:
    mine = lab.toolkit.uuids[0]
    id_ = lab.running(spec(gpus=GpuAccess((mine,))))

    lab.client.containers.get(id_).restart(timeout=0)

    assert lab.toolkit.given(id_) == [mine] * 2 and lab.shown_inside(id_) == (mine,)


def test_image_of_a_container_with_cards_brings_none(lab: CdiLab, spec: Spec) -> None:
    first = lab.running(spec(gpus=GpuAccess((lab.toolkit.uuids[0],))))
    lab.engine.stop(first, 0)
    reference = f"berth-{lab.instance}/w-1:r2"
    lab.engine.commit(first, reference)

    bare = lab.running(spec("2", image=reference))

    assert lab.toolkit.given(bare) == [] and lab.shown_inside(bare) == ()
    assert lab.client.images.get(reference).attrs["Config"]["Labels"].get("berth.gpus", "") == ""


def test_somebody_elses_container_is_seen_with_its_cards(lab: CdiLab, spec: Spec) -> None:
    one, other = lab.toolkit.uuids[:2]
    names = [f"berth-{lab.instance}-by-hand-{number}" for number in "12"]
    made = []
    try:
        for name, ids in zip(names, ([one, other], ["all"]), strict=True):
            request = docker.types.DeviceRequest(driver="cdi", device_ids=[f"{CDI_KIND}{asked}" for asked in ids])
            made.append(lab.client.containers.create(lab.image, name=name, network_mode="none",
                                                     device_requests=[request]))
            made[-1].start()
        assert {user.name: user.gpus for user in lab.engine.gpu_users()} == {
            names[0]: tuple(sorted((one, other))), names[1]: ("all",)}
    finally:
        for container in made:
            container.remove(force=True)


# -- no


def test_card_that_the_engine_does_not_list_is_not_asked_for_by_cdi(lab: CdiLab, spec: Spec) -> None:
    """The two ways do not mix in one container, and this engine has no toolkit for the other."""
    id_ = lab.engine.create(spec(gpus=GpuAccess((UNKNOWN, lab.toolkit.uuids[0]))))

    with pytest.raises(GpusRefused, match="could not select device driver"):
        lab.engine.start(id_)

    assert [row.state for row in lab.engine.list()] == [ContainerState.CREATED]


def test_card_that_has_gone_from_the_file_is_refused_by_name(lab: CdiLab, spec: Spec) -> None:
    gone = lab.toolkit.uuids[2]
    id_ = lab.engine.create(spec(gpus=GpuAccess((gone,))))
    lab.toolkit.forget_cdi()
    eventually(lambda: not lab.known())
    try:
        with pytest.raises(GpusRefused, match=f"unresolvable CDI devices {CDI_KIND}{gone}"):
            lab.engine.start(id_)
    finally:
        lab.toolkit.show_by_cdi()
    eventually(lambda: gone in lab.known())

    lab.engine.start(id_)
    assert lab.shown_inside(id_) == (gone,)


def test_hook_that_fails_is_a_refusal(lab: CdiLab, spec: Spec) -> None:
    id_ = lab.engine.create(spec(gpus=GpuAccess((lab.toolkit.uuids[3],))))
    lab.toolkit.fail_next(1)

    with pytest.raises(GpusRefused, match="initialization error"):
        lab.engine.start(id_)

    lab.engine.start(id_)
    assert lab.toolkit.given(id_) == [lab.toolkit.uuids[3]]
