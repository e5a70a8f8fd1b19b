"""Every route as everybody: a route without a rule here turns this red, and so does one that lets in who should not be.

Beside it: test_routes.py (methods, tokens, hostile text), test_guards.py (headers).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from web.conftest import KEY, NOON, PASSWORD, Browser, Cast, signed_in
from web.test_routes import path_of
from webapp.domain.actor import Actor
from webapp.services import keys, people
from webapp.store.session import Store
from webapp.store.tables import Role
from webapp.web.auth import PUBLIC


class May(StrEnum):
    ANYBODY = "anybody"
    MEMBERS = "whoever is signed in, about what is theirs or everybody's"
    OWNER_OR_ADMIN = "the owner and administrators; for others it does not exist"
    OWNER = "the owner alone; an administrator is refused, for others it does not exist"
    ADMIN = "administrators"


RULES: dict[May, tuple[str, ...]] = {
    May.ANYBODY: ("gate.healthz", "gate.language", "gate.sign_in", "gate.sign_in_form", "gate.welcome",
                  "gate.welcome_form"),
    May.MEMBERS: (
        "gate.prove", "gate.sign_out", "home.home", "home.poll", "images.cancel", "images.image", "images.images",
        "images.poll", "images.poll_image", "keys.add", "keys.keys", "keys.poll", "launch.launch",
        "launch.launch_form", "launch.poll_gpus", "me.end_others", "me.end_session", "me.me", "me.password"),
    May.OWNER_OR_ADMIN: (
        "change.change", "change.change_form", "change.measure", "change.poll", "change.poll_gpus",
        "connections.connections", "connections.cut", "connections.look", "connections.poll", "keys.remove",
        "workspace.logs", "workspace.poll", "workspace.remove", "workspace.remove_form", "workspace.start",
        "workspace.stop", "workspace.workspace"),
    May.OWNER: ("keys.rename", "save.cancel", "save.poll", "save.save", "save.save_form", "workspace.open_jupyter"),
    May.ADMIN: (
        "admin.hosts", "admin.house", "admin.workspaces", "audit.audit", "audit.export", "hold.decide", "hold.hold",
        "images.add", "images.add_form",
        "images.delete", "images.delete_form", "images.offer", "images.prepare", "images.pull",
        "images.withdraw", "people.activate", "people.deactivate", "people.invite", "people.member", "people.people",
        "people.set_password", "people.set_role", "people.withdraw_invite", "quotas.add", "quotas.change",
        "quotas.clear", "quotas.quotas", "teams.add", "teams.add_member", "teams.remove_member", "teams.teams",
        "volumes.add", "volumes.remove", "volumes.volumes"),
}
RULE_OF = {endpoint: may for may, endpoints in RULES.items() for endpoint in endpoints}
# What they name is not there in these tests, for whoever may ask.
NAMES_NOTHING = frozenset({"gate.welcome", "gate.welcome_form", "images.cancel", "me.end_session",
                           "people.withdraw_invite", "quotas.add", "quotas.clear", "save.cancel"})
AN_ADMIN_GETS_NONE = frozenset({"keys.rename"})     # it says that there is no such key


@pytest.fixture
def ids(cast: Cast, launch: Callable[..., str], store: Store) -> dict[str, str]:
    with store.write() as db:
        key = keys.add_keys(db, Actor(cast.alice, False), member_id=cast.alice, text=KEY, title="", now=NOON)[0]
    return {"workspace_id": launch(), "member_id": cast.bob, "team_id": cast.team, "image_id": cast.image,
            "volume_id": cast.volume, "key_id": key.id, "subject": "house", "kind": "csv"}


@pytest.fixture
def deactivated(app: Flask, store: Store) -> Browser:
    """Somebody whose account ended while their browser was open."""
    house = Actor.house()
    with store.write() as db:
        dave = people.create_member(db, house, username="dave", display_name="Dave", password=PASSWORD,
                                    role=Role.ADMIN, now=NOON)
    browser = signed_in(app, "dave")
    with store.write() as db:
        people.deactivate_member(db, house, dave.id, now=NOON)
    return browser


def ask(browser: Browser, rule: Rule, path: str) -> TestResponse:
    return browser.get(path) if "GET" in (rule.methods or ()) else browser.post(path, {"confirm": "run-1"})


def turned_away(answer: TestResponse) -> bool:
    """To the sign-in, with nothing shown or done."""
    return answer.status_code == 401 or (
        answer.status_code == 303 and answer.headers["Location"].startswith("/sign-in"))


def rules(app: Flask) -> list[Rule]:
    return [rule for rule in app.url_map.iter_rules() if rule.endpoint != "static"]


def test_every_route_has_a_rule_and_no_rule_is_left_over(app: Flask) -> None:
    assert {rule.endpoint for rule in rules(app)} == RULE_OF.keys()
    assert PUBLIC - {"static"} == set(RULES[May.ANYBODY])


@pytest.mark.parametrize("endpoint", sorted(RULE_OF))
def test_route_lets_in_whom_its_rule_names(
    endpoint: str, app: Flask, ids: dict[str, str], anyone: Browser, deactivated: Browser, alice: Browser, bob: Browser,
    carol: Browser,
) -> None:
    may = RULE_OF[endpoint]
    for rule in (each for each in rules(app) if each.endpoint == endpoint):
        path = path_of(rule, ids)
        said = {name: ask(browser, rule, path) for name, browser in (
            ("nobody", anyone), ("deactivated", deactivated), ("member", bob), ("owner", alice), ("admin", carol))}
        codes = {name: answer.status_code for name, answer in said.items()}
        assert max(codes.values()) < 500, codes
        for name in ("nobody", "deactivated"):
            assert turned_away(said[name]) != (may is May.ANYBODY) or endpoint == "gate.sign_out", (name, codes)
        inside = {"member": may in (May.ANYBODY, May.MEMBERS), "owner": may is not May.ADMIN,
                  "admin": may is not May.OWNER}
        for name, is_in in inside.items():
            if is_in:
                gone = name == "admin" and "POST" in (rule.methods or ())       # the owner has removed it just now
                fine = {404} if endpoint in NAMES_NOTHING or gone else set()
                assert codes[name] not in {401, 403, 404, 405} - fine and not (
                    turned_away(said[name]) and endpoint != "gate.sign_out"), (name, codes)
            else:
                hidden = name == "member" and may is not May.ADMIN or endpoint in AN_ADMIN_GETS_NONE
                assert codes[name] == (404 if hidden else 403), (name, codes)


def test_no_view_decides_by_the_name_of_a_person() -> None:
    """Who may is asked of the actor, in services and reads; a page that compares names would be a second rule."""
    views = Path("webapp/web/pages").glob("*.py")
    assert not [view.name for view in views if "username ==" in view.read_text("utf-8")]
