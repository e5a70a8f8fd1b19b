"""The way in and out: sign-in, one-time links, the language switch, and the probe for load balancers."""

from __future__ import annotations

from flask import Blueprint, Response, flash, make_response, redirect, render_template, request, url_for
from flask_limiter.util import get_remote_address
from werkzeug.wrappers import Response as AnyResponse

from webapp.domain.actor import Actor
from webapp.errors import N_, AppError, InvalidInput, NotFound
from webapp.i18n import LOCALES
from webapp.services import people, sessions
from webapp.services.passwords import LEAST_CHARACTERS
from webapp.store.reads import house
from webapp.store.tables import Member, Role
from webapp.web import language as languages
from webapp.web import proof
from webapp.web.answers import problem
from webapp.web.auth import begin_session, end_session, local_path, remember_device
from webapp.web.context import actor, here, member, now, reading, visitor, writing
from webapp.web.forms import GENERAL, Form
from webapp.web.limits import PER_ACCOUNT, PER_ADDRESS, account, failed, limiter
from webapp.web.words import gettext

blueprint = Blueprint("gate", __name__)
WRONG = N_("User name and password do not match, or the account is not active.")
USED_LINK = N_("This link was used already, has expired, or never was.")


@blueprint.get("/sign-in")
def sign_in_form() -> str | AnyResponse:
    if visitor():
        return redirect(local_path(request.args.get("next", "/")), code=303)
    form = Form("username", "password", next=request.args.get("next", "/")[:1000])
    return render_template("gate/sign_in.html", form=form)


@blueprint.post("/sign-in")
@limiter.limit(PER_ADDRESS, key_func=get_remote_address, deduct_when=failed)
@limiter.limit(PER_ACCOUNT, key_func=account, deduct_when=failed)
def sign_in() -> tuple[str, int] | AnyResponse:
    form = Form("username", "password", "next")
    person = None
    try:
        form.check()
        with reading() as db:
            person = people.authenticate(db, username=form["username"], password=form["password"])
    except InvalidInput:
        pass        # whatever is wrong with it, the answer is the same
    if person is None:
        return render_template("gate/sign_in.html", form=form.refuse(GENERAL, WRONG)), 422
    with writing() as db:
        people.record_sign_in(db, _as_actor(person), password=form["password"], now=now())
    return _let_in(person, local_path(form["next"]))


@blueprint.post("/sign-out")
def sign_out() -> AnyResponse:
    if visitor():
        with writing() as db:
            sessions.end(db, actor(), member().session_id, now=now())
    end_session()
    return redirect(url_for("gate.sign_in_form"), code=303)


@blueprint.post("/prove")
@limiter.limit(PER_ACCOUNT, key_func=lambda: f"proof {member().id}", deduct_when=failed)
def prove() -> AnyResponse:
    """Then on to the form that was sent; a path that is none of ours ends at the workspaces."""
    form, path = Form(proof.PASSWORD), local_path(request.form.get(proof.PATH, "/"))
    try:
        form.check()
        with writing() as db:
            is_right = sessions.prove(db, actor(), member().session_id, password=form[proof.PASSWORD], now=now())
    except InvalidInput:
        is_right = False
    if not is_right:
        return proof.ask(path, form.refuse(proof.PASSWORD, N_("That is not your password.")))
    return redirect(path, code=307)


@blueprint.get("/welcome/<token>")
def welcome_form(token: str) -> str | Response:
    with reading() as db:
        try:
            role = people.peek_invite(db, token=token, now=now()).role
        except NotFound:
            return _used_link()
    return _welcome(Form("username", "display_name", "password"), role)


@blueprint.post("/welcome/<token>")
def welcome(token: str) -> str | tuple[str, int] | AnyResponse:
    form = Form("username", "display_name", "password")
    with reading() as db:
        try:
            role = people.peek_invite(db, token=token, now=now()).role
        except NotFound:
            return _used_link()
    try:
        form.check()
        with writing() as db:
            person = people.redeem_invite(
                db, token=token, username=form["username"], display_name=form["display_name"],
                password=form["password"], now=now(), address=request.remote_addr)
    except NotFound:
        return _used_link()     # somebody was faster
    except AppError as error:
        return _welcome(form.refused(error), role), error.status
    answer = _let_in(person, url_for("admin.house" if person.role == Role.ADMIN else "home.home"))
    flash(gettext("Welcome, %(name)s. Your account is made.", name=person.display_name))   # into the new session
    return answer


@blueprint.post("/language")
def language() -> AnyResponse:
    wanted = request.form.get("language", "")
    if wanted not in LOCALES:
        raise InvalidInput.of("language", N_("That is not a language Berth speaks. Choose one from the list."))
    if visitor():
        with writing() as db:
            people.set_language(db, actor(), wanted, now=now())
    response = make_response(redirect(local_path(request.form.get("next", "/")), code=303))
    languages.remember(response, wanted, secure=here().settings.url.startswith("https:"))
    return response


@blueprint.get("/healthz")
def healthz() -> Response:
    """200 when the database answers; whether the agent lives is told beside it."""
    with reading() as db:
        sign = house.sign_of_life(db)
    alive = sign.alive_at.isoformat() if sign and sign.alive_at else None
    response = make_response({"status": "ok", "agent_alive_at": alive})
    return response


def _let_in(person: Member, target: str) -> AnyResponse:
    begin_session(person.id)
    response = make_response(redirect(target, code=303))
    remember_device(response, person.username)
    return response


def _as_actor(person: Member) -> Actor:
    return Actor(person.id, is_admin=person.role == Role.ADMIN, address=request.remote_addr)


def _welcome(form: Form, role: str) -> str:
    return render_template("gate/welcome.html", form=form, role=role, least_password=LEAST_CHARACTERS)


def _used_link() -> Response:
    return problem(404, "used_link", gettext(USED_LINK), advice=gettext(
        "If you made your account with it, sign in. Otherwise ask an administrator for a new one."))
