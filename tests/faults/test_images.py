"""Work on images on a real engine: pulled well and badly, built from Dockerfiles, saved, ended in the middle."""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import docker
import parts
import pytest

from faults import agents, standin
from faults.conftest import MakeHouse
from faults.house import House, Person
from faults.registry import Registry, registry
from faults.waiting import until
from faults.workspace import now
from webapp.domain.images import base_reference
from webapp.domain.operation import OperationKind, OperationState
from webapp.domain.workspace import Phase
from webapp.engines import recipe
from webapp.services import images, operations
from webapp.store.tables import HostImage, Image, Operation, Role

pytestmark = pytest.mark.docker

CANARY = "canary-4f1e7c"


@pytest.fixture(scope="module")
def served() -> Iterator[Registry]:
    with registry() as served:
        yield served


@pytest.fixture(scope="module")
def house(make_house: MakeHouse, served: Registry) -> Iterator[House]:
    house = make_house("images")
    house.start_agent()
    yield house
    house.close()
    sweep(house, served.address)


@pytest.fixture(scope="module")
def carol(house: House) -> Person:
    return house.add_person("carol", role=Role.ADMIN)


@pytest.fixture(scope="module")
def alice(house: House) -> Person:
    return house.add_person("alice")


@pytest.fixture(scope="module")
def image(house: House) -> Image:
    return house.add_image(standin.WORKSPACE)


@pytest.fixture(scope="module")
def base(engine_url: str) -> str:
    """A base that has all that a workspace image needs: nothing is fetched from anywhere."""
    parts.workspace_image(engine_url)
    return recipe.local_base_reference()


def sweep(house: House, prefix: str) -> None:
    """Names on the engine that begin so, and what this house has built."""
    mine = (f"{prefix}/", f"berth-{house.instance}/")
    for row in house.docker.api.images():
        for name in row.get("RepoTags") or ():
            if name.startswith(mine):
                house.docker.images.remove(name, force=True)


def do(house: House, service: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    with house.store.write() as session:
        return service(session, *arguments, now=now(), **keywords)


def of(house: House, operation: Operation) -> Operation:
    with house.store.read() as session:
        return session.get_one(Operation, operation.id)


def ended(house: House, operation: Operation, state: OperationState, seconds: float = 120.0) -> Operation:
    def row() -> Operation | None:
        row = of(house, operation)
        if row.state in (OperationState.DONE, OperationState.FAILED) and row.state != state:
            raise AssertionError(f"{row.state}: {row.reason}\n{row.log}\n{house.how_it_is()}")
        return row if row.state == state else None

    return until(row, seconds=seconds, what=lambda: f"{of(house, operation).progress}\n{house.how_it_is()}")  # type: ignore[return-value]


def entry(house: House, image_id: str | None) -> Image:
    with house.store.read() as session:
        return session.get_one(Image, image_id)


def is_on_host(house: House, operation: Operation) -> bool:
    with house.store.read() as session:
        return session.get(HostImage, (operation.host_id, operation.image_id)) is not None


def pull(house: House, actor: Any, reference: str) -> Operation:
    image = do(house, images.add, actor, title=reference[-50:], reference=reference, base=None, cuda_version=None,
               has_jupyter=False)
    operation: Operation = do(house, images.pull, actor, image.id)
    return operation


def prepare(house: House, actor: Any, **given: Any) -> Operation:
    operation: Operation = do(house, images.prepare, actor, **{
        "title": "Mine", "base": None, "dockerfile": None, "cuda_version": None, "with_jupyter": False, **given})
    return operation


class TestPull:
    def test_bytes_and_layers_are_counted_and_the_digest_is_kept(
        self, house: House, carol: Person, served: Registry,
    ) -> None:
        operation = pull(house, carol.actor, served.reference("counted"))
        row = ended(house, operation, OperationState.DONE)
        image = served.image("counted")
        assert row.result is not None and row.result["digest"] == image.digest and row.result["moved_to"] is None
        kept = entry(house, operation.image_id)
        assert (kept.digest, kept.architecture) == (image.digest, "amd64") and kept.size_bytes
        until(lambda: is_on_host(house, operation), what=house.how_it_is)

    def test_tag_that_was_moved_is_noticed_and_the_old_image_is_used(
        self, house: House, carol: Person, served: Registry,
    ) -> None:
        first = pull(house, carol.actor, served.reference("moving"))
        former = ended(house, first, OperationState.DONE).result or {}
        id_ = house.docker.images.get(served.reference("moving")).id
        house.docker.images.remove(served.reference("moving"))
        served.move("moving")

        again = ended(house, do(house, images.pull, carol.actor, first.image_id), OperationState.DONE).result or {}

        assert (again["digest"], again["moved_to"]) == (former["digest"], served.image("moving").digest)
        assert house.docker.images.get(served.reference("moving")).id == id_

    @pytest.mark.parametrize(("repository", "code", "cause"), [
        ("missing", "image_not_found", "manifest unknown"),
        ("private", "registry_refused", "unauthorized|no basic auth credentials"),
        ("away", "pull_failed", "try again later|503|unavailable"),
        ("broken", "pull_failed", "verification failed"),
    ])
    def test_each_trouble_is_its_own_reason(
        self, house: House, carol: Person, served: Registry, repository: str, code: str, cause: str,
    ) -> None:
        row = ended(house, pull(house, carol.actor, served.reference(repository)), OperationState.FAILED)
        assert row.reason is not None and row.reason["code"] == code, row.reason
        assert re.search(cause, row.reason["facts"]["detail"], re.IGNORECASE)

    @pytest.mark.parametrize("repository", ["slow", "hung"])
    def test_cancelled_it_ends_and_can_be_asked_for_again(
        self, house: House, carol: Person, served: Registry, repository: str,
    ) -> None:
        operation = pull(house, carol.actor, served.reference(f"cancel/{repository}"))
        until(lambda: f"cancel/{repository}" in served.asked, what=house.how_it_is)
        assert do(house, operations.cancel, carol.actor, operation.id)

        ended(house, operation, OperationState.CANCELLED, seconds=10)
        assert not house.docker.api.images(served.reference(f"cancel/{repository}"))
        again = do(house, images.pull, carol.actor, operation.image_id)
        assert again.id != operation.id and do(house, operations.cancel, carol.actor, again.id)
        ended(house, again, OperationState.CANCELLED, seconds=10)


def test_login_and_mirror_are_those_of_the_settings(make_house: MakeHouse, tmp_path: Any) -> None:
    """And the login is in no log, no row and no error."""
    secret = f"{CANARY}-login"
    logins = tmp_path / "config.json"
    with registry(login=("berth", secret)) as closed:
        logins.write_text(json.dumps({"auths": {closed.address: {"auth": _basic(f"berth:{secret}")}}}))
        logins.chmod(0o600)
        house = make_house("login", settings={"REGISTRY_AUTH": str(logins), "REGISTRY_MIRROR": closed.address})
        house.start_agent()
        carol = house.add_person("carol", role=Role.ADMIN)
        ended(house, pull(house, carol.actor, closed.reference("mine")), OperationState.DONE)
        hub = ended(house, pull(house, carol.actor, "example/on-the-hub:1"), OperationState.DONE)

        assert hub.result is not None and hub.result["digest"] == closed.image("example/on-the-hub").digest
        names = [name for row in house.docker.api.images() for name in row.get("RepoTags") or ()]
        assert "example/on-the-hub:1" in names and not [name for name in names if "on-the-hub" in name and ":5" in name]
        lost = ended(house, pull(house, carol.actor, "example/missing:1"), OperationState.FAILED)
        assert "image.mirror_failed" in house.how_it_is()
        said = f"{house.how_it_is()}{lost.reason}{hub.result}"
        assert secret not in said and _basic(f"berth:{secret}") not in said
        house.docker.images.remove("example/on-the-hub:1")
        house.close()
        sweep(house, closed.address)


def _basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class TestPrepare:
    def test_dockerfile_becomes_an_image_that_runs(self, house: House, carol: Person, base: str) -> None:
        text = f"FROM {base}\nENV CUDA_VERSION=12.8.1\nRUN echo {CANARY} > /opt/made-by-me\n"
        operation = prepare(house, carol.actor, dockerfile=text)
        row = ended(house, operation, OperationState.DONE, seconds=280)
        image = entry(house, operation.image_id)

        assert "Step 3/3 : RUN echo" in str(row.log) and "Successfully tagged berth/workspace" in str(row.log)
        assert (image.cuda_version, image.architecture, image.has_jupyter) == ("12.8", "amd64", False)
        workspace = house.launch(carol, image, "prepared")
        workspace.until(Phase.RUNNING)
        assert workspace.run("cat", "/opt/made-by-me").strip() == CANARY
        workspace.remove().until(Phase.REMOVED)
        ended(house, do(house, images.delete, carol.actor, image.id), OperationState.DONE)
        names = {name for row in house.docker.api.images() for name in row.get("RepoTags") or ()}
        assert not names & {str(image.reference), base_reference(house.instance, image.id, text)} and base in names

    @pytest.mark.parametrize(("lines", "line", "said"), [
        (["RUN echo one \\", "  # and two", "", "  && false"], 3, "non-zero code: 1"),
        (["ENV A=1", "EXPOSE"], 4, "EXPOSE requires"),
        (["USER nobody-of-that-name", "RUN id"], 4, "nobody-of-that-name"),
        (["RUN true", "COPY --from=1 /a /b"], 4, "--from=1|from flag|stage"),
    ])
    def test_line_that_is_broken_is_named(
        self, house: House, carol: Person, base: str, lines: list[str], line: int, said: str,
    ) -> None:
        text = "\n".join(["# mine", f"FROM {base}", *lines, ""])
        row = ended(house, prepare(house, carol.actor, dockerfile=text), OperationState.FAILED)
        assert row.reason is not None and row.reason["code"] == "build_failed", row.reason
        facts = row.reason["facts"]
        assert facts["line"] == line, facts
        assert re.search(said, f"{facts['detail']} {facts['last']}"), facts

    def test_cancelled_it_ends_with_its_container(self, house: House, carol: Person, base: str) -> None:
        operation = prepare(house, carol.actor, dockerfile=f"FROM {base}\nRUN echo begun-{CANARY} && sleep 600\n")
        until(lambda: f"\nbegun-{CANARY}" in str(of(house, operation).log), what=house.how_it_is)
        assert do(house, operations.cancel, carol.actor, operation.id)
        ended(house, operation, OperationState.CANCELLED, seconds=10)
        until(lambda: not [row for row in house.docker.api.containers() if "sleep 600" in row["Command"]],
              what=house.how_it_is)


class TestSave:
    def test_what_is_in_it_is_kept_and_nothing_secret_or_own(
        self, house: House, alice: Person, image: Image,
    ) -> None:
        workspace = house.launch(alice, image, "to-save")
        workspace.until(Phase.RUNNING)
        workspace.run("sh", "-c", f"echo {CANARY} > /tmp/installed; echo {CANARY}-home > $HOME/secret")
        operation = do(house, images.save, alice.actor, workspace.id, title="Saved", team_id=None)
        ended(house, operation, OperationState.DONE)
        saved = entry(house, operation.image_id)

        archive, files = _everything_in(house.docker, str(saved.reference))
        secret, row = workspace.secret(), workspace.row()
        assert files["tmp/installed"].decode().strip() == CANARY
        for private in (secret.jupyter_token, secret.host_private_key.splitlines()[2], f"{CANARY}-home",
                        alice.key.public.split()[1]):
            assert private.encode() not in archive
        assert not [path for path in files if path.startswith("etc/berth/")]
        config = house.docker.images.get(str(saved.reference)).attrs["Config"]
        marks = {key: value for key, value in config["Labels"].items() if not key.startswith("berth.image.")}
        assert set(marks.values()) <= {""} and f"BERTH_WORKSPACE={row.name}" not in config["Env"]

        workspace.remove().until(Phase.REMOVED)
        again = house.launch(alice, saved, "from-saved")
        again.until(Phase.RUNNING)
        assert again.run("cat", "/tmp/installed").strip() == CANARY
        again.remove().until(Phase.REMOVED)

    def test_container_that_somebody_runs_from_it_by_hand_is_left_alone(
        self, house: House, alice: Person, image: Image,
    ) -> None:
        """F29: also one that copies labels, and has a name like Berth's."""
        workspace = house.launch(alice, image, "to-copy")
        workspace.until(Phase.RUNNING)
        operation = do(house, images.save, alice.actor, workspace.id, title="Copied", team_id=None)
        ended(house, operation, OperationState.DONE)
        saved = entry(house, operation.image_id)
        labels = workspace.container().labels
        by_hand = [
            house.docker.containers.run(str(saved.reference), detach=True, name=f"berth-{house.instance}-w-hand-r1"),
            house.docker.containers.run(str(saved.reference), detach=True, labels=labels, name=f"hand-{workspace.id}"),
        ]
        try:
            workspace.remove().until(Phase.REMOVED)
            for _ in range(2):
                house.restart_agent()
            for container in by_hand:
                container.reload()
                assert container.status == "running"
            row = of(house, do(house, images.delete, alice.actor, saved.id))
            refused = ended(house, row, OperationState.FAILED)
            assert refused.reason is not None and refused.reason["code"] == "image_held"
        finally:
            for container in by_hand:
                container.remove(force=True)
        ended(house, do(house, images.delete, alice.actor, saved.id), OperationState.DONE)
        assert str(saved.reference) not in house.private_images()


@pytest.mark.parametrize("kind", [OperationKind.IMAGE_PULL, OperationKind.IMAGE_PREPARE, OperationKind.WORKSPACE_SAVE])
@pytest.mark.parametrize("side", ["before", "during", "after"])
def test_agent_that_dies_in_the_middle_is_followed_by_one_that_ends_it(
    make_house: MakeHouse, served: Registry, base: str, kind: OperationKind, side: str,
) -> None:
    house = make_house(f"crash-{kind}-{side}")
    carol = house.add_person("carol", role=Role.ADMIN)
    house.start_agent(entry=agents.CRASHING, orders=str(house.folder))
    if kind is OperationKind.WORKSPACE_SAVE:
        workspace = house.launch(carol, house.add_image(standin.WORKSPACE), "kept")
        workspace.until(Phase.RUNNING)
    crash = 2 if kind is OperationKind.WORKSPACE_SAVE else 1      # the first call there takes away an earlier try
    (house.folder / "order").write_text(f'{{"crash": {crash}, "side": "{side}"}}')
    if kind is OperationKind.IMAGE_PULL:
        operation = pull(house, carol.actor, served.reference(f"crash-{side}"))
    elif kind is OperationKind.IMAGE_PREPARE:
        operation = prepare(house, carol.actor, dockerfile=f"FROM {base}\nRUN echo {side}\n")
    else:
        operation = do(house, images.save, carol.actor, workspace.id, title="Kept", team_id=None)
    assert house.agent is not None
    house.agent.wait_dead()
    (house.folder / "order").unlink()
    assert of(house, operation).state == OperationState.RUNNING

    house.start_agent(entry=agents.CRASHING, orders=str(house.folder))

    ended(house, operation, OperationState.DONE, seconds=280)
    image = entry(house, operation.image_id)
    assert image.reference is not None and house.docker.images.get(image.reference)
    if kind is OperationKind.WORKSPACE_SAVE:
        workspace.until(Phase.RUNNING)
        workspace.remove().until(Phase.REMOVED)
    if kind is OperationKind.IMAGE_PREPARE:
        ended(house, do(house, images.delete, carol.actor, image.id), OperationState.DONE)
    house.close()
    sweep(house, served.address)


def _everything_in(client: docker.DockerClient, reference: str) -> tuple[bytes, dict[str, bytes]]:
    """`docker save` as it is, its layers unpacked (they are plain tar), and the files of all layers by path."""
    archive = b"".join(client.images.get(reference).save())
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as outer:
        for member in outer.getmembers():
            content = outer.extractfile(member)
            data = content.read() if content else b""
            if tarfile.is_tarfile(io.BytesIO(data)):
                with tarfile.open(fileobj=io.BytesIO(data)) as layer:
                    for each in layer.getmembers():
                        inner = layer.extractfile(each) if each.isfile() else None
                        files[each.name] = inner.read() if inner else b""
    return archive, files
