"""Cards on a real engine: what its toolkit stand-in handed out is what was asked for, whatever images and people say.

promises.md S3 and cases 29 to 33. The engine is this file's own: the shared one has no toolkit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace

import docker
import pytest
from contract_lab import Spec, detail_of
from faults import standin
from faults.namespaces import inside
from faults.own_engine import own_engine
from faults.toolkit import Toolkit
from lossy_proxy import LossyProxy

from webapp.domain.container import ContainerSpec, ContainerState, GpuAccess
from webapp.engines.docker import DockerEngine
from webapp.errors import EngineUnreachable, GpusRefused
from webapp.simulation import presets
from webapp.simulation.state import Simulation, changed

pytestmark = pytest.mark.docker

INSTANCE = "tt0gpus00"
UNKNOWN = "GPU-51e1a7ed-0000-0000-0000-000000000000"
CARD = re.compile(r"(?:GPU|MIG)-[0-9a-f-]{36}")

# What an image says about cards; FOREIGN stands for one that belongs to somebody else.
IMAGES = {
    "nothing": ("FROM_IMAGE=yes",),
    "all": ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all"),
    "void": ("NVIDIA_VISIBLE_DEVICES=void",),
    "none": ("NVIDIA_VISIBLE_DEVICES=none",),
    "first": ("NVIDIA_VISIBLE_DEVICES=0",),
    "foreign": ("NVIDIA_VISIBLE_DEVICES=FOREIGN", "CUDA_VISIBLE_DEVICES=0", "BERTH_SIMULATED_GPUS=FOREIGN"),
}
PEOPLE = {
    "nothing": {},
    "everything": {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all", "NVIDIA_REQUIRE_CUDA": "x",
                   "CUDA_VISIBLE_DEVICES": "0,1,2,3", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "LD_PRELOAD": "/x.so",
                   "BERTH_SIMULATED_GPUS": "all"},
}


@dataclass
class GpuLab:
    engine: DockerEngine
    client: docker.DockerClient
    toolkit: Toolkit
    url: str
    instance: str = INSTANCE
    image: str = standin.WITH_PYTHON

    @property
    def whole(self) -> list[str]:
        """Three cards without slices, ascending; the last one is somebody else's in every test."""
        return sorted(self.toolkit.uuids[1:4])

    @property
    def slice(self) -> str:
        return next(part.uuid for card in self.simulation().cards for part in card.slices)

    def simulation(self) -> Simulation:
        with changed(self.toolkit.state_file) as simulation:
            return simulation

    def image_that_says(self, name: str) -> str:
        tag = f"{standin.REPOSITORY}:says-{name}"
        if not self.client.images.list(tag):
            said = [f"ENV {line.replace('FOREIGN', self.whole[2])}" for line in IMAGES[name]]
            base = self.client.containers.create(standin.WORKSPACE)
            base.commit(standin.REPOSITORY, f"says-{name}", changes="\n".join(said))
            base.remove()
        return tag

    def shown_inside(self, id_: str) -> list[str]:
        listed = self.engine.exec(id_, ["nvidia-smi", "-L"], deadline_seconds=20)
        assert listed.exit_code == 0, listed.output
        return sorted(CARD.findall(listed.output))

    def environment_of(self, id_: str) -> dict[str, str]:
        return dict(line.partition("=")[::2] for line in self.client.api.inspect_container(id_)["Config"]["Env"])


@pytest.fixture(scope="module")
def engine_with_cards() -> Iterator[GpuLab]:
    """Four A100, and two H100 of which the first is cut into slices."""
    cards = Simulation(cards=[*presets.preset("four").cards, *presets.preset("mig").cards])
    with own_engine("gpus", cards=cards) as (own, ground):
        engine = DockerEngine(own.url, instance=INSTANCE, host="gpu1")
        inside(own.namespace, engine.prepare)       # its firewall rules belong there
        yield GpuLab(engine, ground.docker, own.toolkit, own.url)
        engine.close()


@pytest.fixture
def lab(engine_with_cards: GpuLab) -> Iterator[GpuLab]:
    yield engine_with_cards
    for container in engine_with_cards.client.containers.list(all=True):
        container.remove(force=True)


@pytest.fixture
def spec(lab: GpuLab) -> Spec:
    return Spec(lab)  # type: ignore[arg-type]


# -- the matrix of acceptance: image × person × request


@pytest.mark.parametrize("image", IMAGES)
def test_toolkit_hands_out_the_claims_and_nothing_else(lab: GpuLab, spec: Spec, image: str) -> None:
    requests = {"no card": (), "one": (lab.whole[0],), "two": tuple(lab.whole[:2]), "slice": (lab.slice,)}
    made: dict[str, tuple[str, ...]] = {}
    for number, (uuids, person) in enumerate(product(requests.values(), PEOPLE.values())):
        id_ = lab.engine.create(spec(str(number), gpus=GpuAccess(uuids), environment=person,
                                     image=lab.image_that_says(image)))
        lab.engine.start(id_)
        made[id_] = uuids

    handed_out = {id_: lab.toolkit.given(id_) for id_ in made}

    assert handed_out == {id_: [",".join(uuids)] if uuids else [] for id_, uuids in made.items()}
    assert {id_: detail_of(lab, id_).gpus for id_ in made if made[id_]} == {  # type: ignore[arg-type]
        id_: uuids for id_, uuids in made.items() if uuids}
    for id_, uuids in made.items():
        said = lab.environment_of(id_)
        assert said["NVIDIA_VISIBLE_DEVICES"] == (",".join(uuids) or "void")
        if uuids:
            assert said["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
            assert said["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert "LD_PRELOAD" not in said and "NVIDIA_REQUIRE_CUDA" not in said


def test_container_shows_its_cards_inside_and_no_other(lab: GpuLab, spec: Spec) -> None:
    two, part = lab.whole[:2], lab.slice
    first, second = (_running(lab, spec(name, gpus=GpuAccess(tuple(uuids)))) for name, uuids in (
        ("1", two), ("2", [part])))

    assert lab.shown_inside(first) == two
    assert [uuid for uuid in lab.shown_inside(second) if uuid.startswith("MIG-")] == [part]


def test_container_without_cards_has_no_nvidia_smi_even_of_an_image_of_nvidias(lab: GpuLab, spec: Spec) -> None:
    id_ = _running(lab, spec())

    assert lab.engine.exec(id_, ["ls", "/usr/bin/nvidia-smi"], deadline_seconds=10).exit_code != 0
    assert detail_of(lab, id_).gpus == ()  # type: ignore[arg-type]


# -- what comes after


def test_container_restarted_by_hand_gets_the_same(lab: GpuLab, spec: Spec) -> None:
    id_ = _running(lab, spec(gpus=GpuAccess((lab.whole[1],))))

    lab.client.containers.get(id_).restart(timeout=0)

    assert lab.toolkit.given(id_) == [lab.whole[1]] * 2 and lab.shown_inside(id_) == [lab.whole[1]]


def test_lost_answer_to_a_creation_leaves_one_container_with_the_claims(lab: GpuLab, spec: Spec) -> None:
    wanted = spec(gpus=GpuAccess(tuple(lab.whole[:2])))
    with LossyProxy(lab.url) as proxy:
        engine = DockerEngine(proxy.url, instance=INSTANCE, host="gpu1")
        proxy.lose_answer("POST", "/containers/create")
        with pytest.raises(EngineUnreachable):
            engine.create(wanted)
        adopted = engine.create(wanted)
        engine.start(adopted)
        engine.close()

    assert [row.id for row in lab.engine.list()] == [adopted]
    assert lab.toolkit.given(adopted) == [",".join(lab.whole[:2])]


def test_image_of_a_container_with_cards_brings_none(lab: GpuLab, spec: Spec) -> None:
    reference = f"berth-{INSTANCE}/w-1:r2"
    first = _running(lab, spec(gpus=GpuAccess((lab.whole[0],))))
    lab.engine.stop(first, 0)
    lab.engine.commit(first, reference)
    config = lab.client.images.get(reference).attrs["Config"]

    bare = _running(lab, spec("2", image=reference))
    other = _running(lab, spec("3", image=reference, gpus=GpuAccess((lab.whole[1],))))

    assert config["Labels"].get("berth.gpus", "") == ""
    assert lab.toolkit.given(bare) == [] and lab.toolkit.given(other) == [lab.whole[1]]
    no_cards = lab.engine.exec(bare, ["nvidia-smi", "-L"], deadline_seconds=20)
    assert (no_cards.exit_code, no_cards.output) == (6, "No devices were found\n")
    assert lab.shown_inside(other) == [lab.whole[1]]


# -- a toolkit that says no


def test_card_that_is_gone_is_refused_by_name_and_nothing_runs(lab: GpuLab, spec: Spec) -> None:
    id_ = lab.engine.create(spec(gpus=GpuAccess((UNKNOWN, lab.whole[0]))))

    with pytest.raises(GpusRefused) as caught:
        lab.engine.start(id_)

    assert f"device error: {UNKNOWN}: unknown device" in caught.value.facts["detail"]
    detail = detail_of(lab, id_)  # type: ignore[arg-type]
    assert detail.container.state is ContainerState.CREATED and detail.started_at is None
    assert detail.gpus == (UNKNOWN, lab.whole[0]) and lab.toolkit.given(id_) == []
    lab.engine.remove(id_)
    assert lab.engine.list() == []


def test_driver_that_comes_late_is_a_refusal_until_it_is_there(lab: GpuLab, spec: Spec) -> None:
    id_ = lab.engine.create(spec(gpus=GpuAccess((lab.whole[0],))))
    lab.toolkit.fail_next(1)
    with pytest.raises(GpusRefused, match="nvidia-container-cli: initialization error"):
        lab.engine.start(id_)

    lab.engine.start(id_)

    assert lab.shown_inside(id_) == [lab.whole[0]]


def test_engine_without_a_toolkit_refuses_and_nothing_runs(
    docker_api: docker.APIClient, engine_url: str, tiny_image: str, instance: str
) -> None:
    engine = DockerEngine(engine_url, instance=instance, host="gpu1")
    engine.prepare()
    wanted = Spec(SimpleNamespace(instance=instance, image=tiny_image))(gpus=GpuAccess((UNKNOWN,)))  # type: ignore[arg-type]
    try:
        with pytest.raises(GpusRefused):
            engine.start(engine.create(wanted))
        assert [row.state for row in engine.list()] == [ContainerState.CREATED]
    finally:
        engine.close()


def _running(lab: GpuLab, wanted: ContainerSpec) -> str:
    id_ = lab.engine.create(wanted)
    lab.engine.start(id_)
    return id_
