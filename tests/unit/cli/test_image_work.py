"""`berth image pull` and `delete`: asked of the agent, waited for, ended by Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from cli.conftest import Berth
from webapp.cli import up, waiting, workspace_image
from webapp.cli.steps import Steps
from webapp.domain.operation import OperationState
from webapp.domain.reasons import Reason
from webapp.engines import recipe
from webapp.key_files import seal_of
from webapp.services import hosts, image_records, images, observations, operations
from webapp.settings import load_settings
from webapp.store.session import Store
from webapp.store.tables import Image, Operation

REFERENCE = "registry.example.org/team/torch:1"


@pytest.fixture
def store(house: Berth) -> Any:
    store = Store(load_settings().database_url, seal=seal_of(load_settings()))
    with store.write() as session:
        hosts.ensure_local(session, name="gpu1", engine_url="unix:///none", now=datetime.now(UTC))
    assert house("image", "add", REFERENCE, "--title", "Torch").code == 0
    yield store
    store.close()


@pytest.fixture
def agent(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """agent(does): at the first look that somebody takes it has taken the operation, and does that with it."""
    def begin(does: Callable[..., None]) -> None:
        looks: list[float] = []

        def sleep(seconds: float) -> None:
            looks.append(seconds)
            with store.write() as session:
                operation = session.scalars(select(Operation)).one()
                if len(looks) == 1:
                    operations.take(session, operation.id, datetime.now(UTC))
                else:
                    does(session, operation)

        monkeypatch.setattr(waiting.time, "sleep", sleep)
    return begin


def state(store: Store) -> str:
    with store.read() as session:
        return session.scalars(select(Operation)).one().state


def test_pull_shows_how_far_it_is_and_ends_with_the_digest(
    house: Berth, store: Store, agent: Callable[..., None],
) -> None:
    def does(session: Any, operation: Operation) -> None:
        operations.report(session, operation.id, {"step": "pull", "done_bytes": 2**30, "total_bytes": 2**31,
                                                  "layers_done": 3, "layers_total": 7})
        operations.finish(session, operation.id, now=datetime.now(UTC),
                          result={"digest": "sha256:abc", "moved_to": "sha256:def"})

    agent(does)
    done = house("image", "pull", REFERENCE)
    assert done.code == 0 and done.out.startswith("sha256:abc\n") and "sha256:def" in done.out


def test_failure_is_a_sentence_with_a_next_step(house: Berth, agent: Callable[..., None], store: Store) -> None:
    facts = {"image": REFERENCE, "host": "gpu1", "detail": "unauthorized"}
    agent(lambda session, operation: operations.finish(
        session, operation.id, now=datetime.now(UTC), reason=Reason("registry_refused", facts)))
    done = house("image", "pull", REFERENCE)
    assert done.code == 1 and "unauthorized" in done.err and "BERTH_REGISTRY_AUTH" in done.err


def test_ctrl_c_cancels_it(house: Berth, agent: Callable[..., None], store: Store) -> None:
    def interrupt(session: Any, operation: Operation) -> None:
        raise KeyboardInterrupt

    agent(interrupt)
    assert house("image", "pull", REFERENCE).code == 130
    with store.read() as session:
        assert session.scalars(select(Operation)).one().cancel_asked_at


def test_without_an_agent_it_stays_asked_for(house: Berth, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", -1.0)
    done = house("image", "pull", REFERENCE)
    assert done.code == 5 and "berth up" in done.err
    assert state(store) == OperationState.WAITING


def test_delete_ends_when_no_host_has_it(house: Berth, agent: Callable[..., None], store: Store) -> None:
    def does(session: Any, operation: Operation) -> None:
        operations.finish(session, operation.id, now=datetime.now(UTC))
        image_records.removed(session, str(operation.image_id), str(operation.host_id), now=datetime.now(UTC))

    agent(does)
    assert house("image", "delete", REFERENCE).code == 0
    assert json.loads(house("image", "list", "--json").out) == []


def test_list_says_for_whom_where_and_how_large(house: Berth, store: Store, state: Path) -> None:
    with store.write() as session:
        epoch = observations.next_epoch(session, now=datetime.now(UTC))
        image = session.scalars(select(Image)).one()
        image.size_bytes, image.digest = 5 * 2**30, "sha256:abc"
        host_id = hosts.choose(session).id
        image_id = image.id
    with store.write() as session:
        seen = image_records.ImageOnEngine("sha256:1", 5 * 2**30)
        assert image_records.on_host(session, host_id, {image_id: seen}, epoch=epoch, now=datetime.now(UTC))
    row, = json.loads(house("image", "list", "--json").out)
    assert (row["for"], row["hosts"], row["size"], row["digest"]) == ("everybody", ["gpu1"], "5 GiB", "sha256:abc")


@pytest.mark.parametrize(("progress", "line"), [
    (None, "waiting for the agent"),
    ({"step": "build", "number": 3, "of": 7}, "build · step 3 of 7"),
    ({"step": "pull", "done_bytes": 2**30, "total_bytes": None, "layers_done": 1, "layers_total": 2},
     "pull · 1 GiB · 1 of 2 layers"),
])
def test_how_far_is_one_line(progress: dict[str, Any] | None, line: str) -> None:
    assert waiting.how_far(progress) == line


def test_default_image_that_was_deleted_is_not_made_again(
    house: Berth, store: Store, monkeypatch: pytest.MonkeyPatch,
) -> None:
    def prepared(*_: Any, **__: Any) -> None:
        made.append(True)
        raise workspace_image.ImageNotMade(why="no engine")

    made: list[bool] = []
    monkeypatch.setattr(workspace_image, "ensure", prepared)
    with store.write() as session:
        images.seed(session, now=datetime.now(UTC))
    up._prepare_image(store, load_settings(), Steps())
    with store.write() as session:
        default = session.scalars(select(Image).where(Image.base == recipe.default_base())).one()
        images.mark_deleted(default, datetime.now(UTC))
    up._prepare_image(store, load_settings(), Steps())
    assert made == [True]
