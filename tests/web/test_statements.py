"""A page takes the same number of SQL statements whatever the rows, and a poll few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from web.conftest import KEY, NOON, OTHER_KEY, Browser, Cast
from web.racks import add_host, card, saw, uuid
from webapp.domain.actor import Actor
from webapp.services import images, keys, people, teams, volumes
from webapp.store.session import Store
from webapp.store.tables import Role

MOST = 13   # the person, the agent's sign of life, their quota and its use, and what the page shows
PAGES = ("/", "/poll/workspaces", "/launch", "/poll/launch/gpus", "/keys", "/poll/keys", "/me", "/house",
         "/house/workspaces", "/house/hosts", "/images", "/poll/images", "/images/IMAGE", "/poll/images/IMAGE",
         "/images/IMAGE/delete", "/house/volumes", "/house/teams", "/house/members",
         "/house/quotas", "/house/audit")
OF_ONE = ("/workspaces/ID", "/poll/workspaces/ID", "/workspaces/ID/change", "/poll/workspaces/ID/change?gpu_way=same",
          "/poll/workspaces/ID/gpus", "/workspaces/ID/save", "/poll/workspaces/ID/save", "/workspaces/ID/connections",
          "/poll/workspaces/ID/connections")


@contextmanager
def counted(store: Store) -> Iterator[list[str]]:
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "alembic_version" not in statement:      # which every session asks for first
            seen.append(statement)
    event.listen(store.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(store.engine, "before_cursor_execute", note)


@pytest.mark.parametrize("shape", [*PAGES, *OF_ONE])
def test_statements_do_not_grow_with_the_rows(shape: str, carol: Browser, store: Store, cast: Cast,
                                              launch: Callable[..., str]) -> None:
    saw(store, cast.host, card(0), card(1))
    made = launch("first", owner="carol" if "ID" in shape else "alice", gpus=(uuid(0),))
    path = shape.replace("IMAGE", cast.image).replace("ID", made)
    few = _count(carol, store, path)
    _add_rows(store, cast, launch)
    many = _count(carol, store, path)
    assert few == many <= MOST


def _count(browser: Browser, store: Store, path: str) -> int:
    with counted(store) as seen:
        assert browser.get(path).status_code == 200
    return sum(1 for statement in seen if not statement.startswith(("BEGIN", "PRAGMA")))


def _add_rows(store: Store, cast: Cast, launch: Callable[..., str]) -> None:
    house = Actor.house()
    saw(store, cast.host, *(card(n) for n in range(8)))
    for n in range(3):
        launch(f"more-{n}", owner="alice", gpus=(uuid(2 * n + 1), uuid(2 * n + 2)))
        saw(store, add_host(store, f"host{n}"), card(100 * n + 100), card(100 * n + 101))
    with store.write() as db:
        keys.add_keys(db, Actor(cast.carol, True), member_id=cast.carol, text=f"{KEY}\n{OTHER_KEY}", title="", now=NOON)
        for n in range(4):
            team = teams.create_team(db, house, name=f"team{n}", now=NOON)
            teams.add_member(db, house, team_id=team.id, member_id=cast.carol, now=NOON)
            volumes.create_volume(db, house, name=f"data{n}", team_id=team.id, host_folder=None, target=None,
                                  read_only=False, roots=(), now=NOON)
            image = images.add(db, house, title=f"Image {n}", reference=f"example.org/i:{n}", base=None,
                               cuda_version=None, has_jupyter=True, now=NOON)
            images.pull(db, house, image.id, now=NOON)
            people.make_invite(db, Actor(cast.carol, True), role=Role.MEMBER, now=NOON)
