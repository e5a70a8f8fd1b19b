"""Who is signed in. The cookie holds a token, signed; whose it is, is read each time.

A session ends when the person signs out, ends it from another browser or changes the password, when an admin changes
their role or deactivates them, and after two weeks without a visit.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TypeVar
from urllib.parse import quote, urlsplit

from flask import Flask, abort, current_app, g, redirect, request, session
from flask_login import LoginManager, current_user, login_user, logout_user
from itsdangerous import BadSignature, URLSafeSerializer
from sqlalchemy.exc import OperationalError
from werkzeug.wrappers import Response

from webapp.errors import Forbidden
from webapp.services import sessions
from webapp.store.reads import people
from webapp.web.answers import wants_json
from webapp.web.context import SignedIn, here, member, now, reading, writing

DEVICE_SECONDS = 365 * 24 * 3600
PUBLIC = frozenset({
    "static", "gate.healthz", "gate.sign_in", "gate.sign_in_form", "gate.welcome", "gate.welcome_form", "gate.language",
})

P = ParamSpec("P")
R = TypeVar("R")


def install(app: Flask, *, instance: str, secure: bool) -> None:
    prefix = "__Host-" if secure else ""
    app.config.update(
        SESSION_COOKIE_NAME=f"{prefix}berth-{instance}",    # two Berths on one host name keep apart
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=secure,
        SESSION_COOKIE_PATH="/",
        PERMANENT_SESSION_LIFETIME=sessions.LIFETIME,
        BERTH_DEVICE_COOKIE=f"{prefix}berth-{instance}-device",
    )
    manager = LoginManager(app, add_context_processor=False)    # it would ask the database for an error page, too
    manager.session_protection = None   # people carry laptops from network to network
    manager.user_loader(_load)
    app.before_request(_gate)


def admins_only(view: Callable[P, R]) -> Callable[P, R]:
    @wraps(view)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        if not member().is_admin:
            raise Forbidden()
        return view(*args, **kwargs)
    return guarded


def begin_session(member_id: str) -> None:
    """A new session, with an id of its own: nothing of the visitor's old one (the CSRF token too) goes over."""
    with writing() as db:
        token = sessions.begin(db, member_id, address=request.remote_addr, browser=request.user_agent.string, now=now())
    session.clear()
    session.permanent = True
    person = _load(token)
    if person is None:      # deactivated this moment
        abort(401)
    login_user(person)
    g.member = person


def end_session() -> None:
    logout_user()
    session.clear()
    g.member = None


def local_path(target: str) -> str:
    """`target` if it is a path of this dashboard, else "/". Browsers read `//x`, `/\\x` and tabs as another host."""
    parts = urlsplit(target) if target.isprintable() else None
    if parts is None or parts.scheme or parts.netloc or not target.startswith("/") or "\\" in target:
        return "/"
    return target if not target.startswith("//") else "/"


def remember_device(response: Response, username: str) -> None:
    """This browser has signed in to this account: its later tries are counted apart from strangers' (see limits.py)."""
    value = _device_signer().dumps([username, secrets.token_hex(8)])
    response.set_cookie(current_app.config["BERTH_DEVICE_COOKIE"], value, max_age=DEVICE_SECONDS, httponly=True,
                        samesite="Lax", secure=current_app.config["SESSION_COOKIE_SECURE"])


def known_device(username: str) -> str | None:
    """The id of this browser if it has signed in as `username` before."""
    try:
        owner, device = _device_signer().loads(request.cookies.get(current_app.config["BERTH_DEVICE_COOKIE"], ""))
    except (BadSignature, TypeError, ValueError):
        return None
    return str(device) if owner == username else None


def _device_signer() -> URLSafeSerializer:
    return URLSafeSerializer(current_app.secret_key or "", salt="device")


def _load(token: str) -> SignedIn | None:
    with reading() as db:
        found = people.signed_in(db, sessions.hash_of(token), seen_since=now() - sessions.LIFETIME)
    if found is None:
        return None
    if now() - found.seen_at >= sessions.SEEN_EVERY:
        with suppress(OperationalError), here().store.write() as db:    # a busy database closes no page over this
            sessions.seen(db, found.session_id, now=now())
    return SignedIn(
        id=found.id, username=found.username, display_name=found.display_name, is_admin=found.is_admin,
        language=found.language, session_id=found.session_id, token=token,
        proven_at=found.proven_at,
    )


def _gate() -> Response | None:
    """Closed unless a route is named in PUBLIC: a page that is forgotten there asks for a sign-in."""
    if request.endpoint in (None, "static", "gate.healthz"):
        return None
    g.member = current_user._get_current_object() if current_user.is_authenticated else None
    if g.member or request.endpoint in PUBLIC:
        return None
    if wants_json():
        abort(401)
    wanted = request.full_path.rstrip("?") if request.method == "GET" else "/"
    suffix = f"?next={quote(wanted, safe='/')}" if wanted != "/" else ""
    return redirect(f"/sign-in{suffix}", code=303)


__all__ = ["admins_only", "begin_session", "end_session", "here", "install", "known_device", "local_path",
           "remember_device"]
