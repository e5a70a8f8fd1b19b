"""Images that have to be pulled: from a registry that has them, and from one that has trouble."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import docker
import pytest

from faults import agents, standin
from faults.conftest import MakeHouse
from faults.house import House, Person
from faults.invariants import check_at_rest
from faults.registry import Registry, registry
from faults.waiting import until
from faults.workspace import Workspace
from webapp.domain.workspace import Phase

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def served() -> Iterator[Registry]:
    with registry() as served:
        yield served


@pytest.fixture(scope="module")
def house(make_house: MakeHouse, served: Registry) -> Iterator[House]:
    house = make_house("pulls")
    house.start_agent()
    yield house
    house.close()
    for repository in ("whole", "slow", "hung"):
        with contextlib.suppress(docker.errors.ImageNotFound):
            house.docker.images.remove(served.reference(repository), force=True)


@pytest.fixture(scope="module")
def alice(house: House) -> Person:
    return house.add_person("alice")


def _launch(house: House, alice: Person, reference: str, name: str) -> Workspace:
    return house.launch(alice, house.add_image(reference), name)


def test_image_is_pulled_and_the_row_says_how_far_it_is(house: House, alice: Person, served: Registry) -> None:
    workspace = _launch(house, alice, served.reference("whole"), "whole")
    row = workspace.until(Phase.RUNNING)

    step = next(step for step in row.progress["steps"] if step["name"] == "image")
    assert step["state"] == "done" and step["total_bytes"] == len(served.image("whole").layers[0])
    workspace.remove().until(Phase.REMOVED)


@pytest.mark.parametrize(
    ("repository", "code", "cause"),
    [
        ("missing", "image_not_found", "manifest unknown"),
        ("private", "registry_refused", "unauthorized|no basic auth credentials"),
        ("broken", "pull_failed", "verification failed"),       # an error inside the stream; it is tried again
    ],
)
def test_failed_pull_fails_the_launch_with_its_cause(
    house: House, alice: Person, served: Registry, repository: str, code: str, cause: str
) -> None:
    workspace = _launch(house, alice, served.reference(repository), repository)
    row = workspace.until(Phase.FAILED)

    assert row.reason is not None and row.reason["code"] == code
    assert re.search(cause, row.reason["facts"]["detail"])
    assert row.reason["facts"]["image"] == served.reference(repository)
    assert workspace.containers() == []
    workspace.remove().until(Phase.REMOVED)
    check_at_rest(house)


@pytest.mark.parametrize(
    ("reference", "code"),
    [(standin.NO_WORKSPACE, "image_not_workspace"), (standin.WITH_VOLUME, "image_has_volumes")],
)
def test_image_that_is_no_workspace_is_refused(house: House, alice: Person, reference: str, code: str) -> None:
    workspace = _launch(house, alice, reference, code.replace("_", "-"))
    row = workspace.until(Phase.FAILED)
    assert row.reason is not None and row.reason["code"] == code
    assert workspace.containers() == []
    workspace.remove().until(Phase.REMOVED)


@pytest.mark.parametrize("repository", ["slow", "hung"])
def test_pull_ends_when_the_workspace_is_removed(
    house: House, alice: Person, served: Registry, repository: str
) -> None:
    workspace = _launch(house, alice, served.reference(repository), repository)
    until(lambda: repository in served.asked, what=workspace.how_it_is)
    assert workspace.until_row(lambda row: row.phase == Phase.PULLING)

    workspace.remove().until(Phase.REMOVED, seconds=12)
    check_at_rest(house)


def test_agent_that_dies_in_a_pull_is_followed_by_one_that_pulls(
    make_house: MakeHouse, served: Registry
) -> None:
    house = make_house("pull-crash")
    workspace = _launch(house, house.add_person("alice"), served.reference("whole"), "one")
    (house.folder / "order").write_text('{"crash": 1, "side": "during"}')
    first = house.start_agent(entry=agents.CRASHING, orders=str(house.folder))
    first.wait_dead()
    (house.folder / "order").unlink()

    house.start_agent(entry=agents.CRASHING, orders=str(house.folder))

    workspace.until(Phase.RUNNING)
    check_at_rest(house)
    workspace.remove().until(Phase.REMOVED)     # the image goes with this module
    house.close()
