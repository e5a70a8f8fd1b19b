"""Dangerous things want the password again, some minutes after it was given last: somebody else may sit there now.

What was typed is not lost: the page that asks for the password holds the whole form, and once it is right sends it on
to where it was going (307: the same method, the same body).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from flask import Response, make_response, render_template, request

from webapp.services import sessions
from webapp.web.context import member, now
from webapp.web.forms import Form

P = ParamSpec("P")
R = TypeVar("R")
PASSWORD, PATH = "proof_password", "proof_path"     # fields of that page; all others are those of the form
OWN = frozenset({PASSWORD, PATH, "csrf_token"})


def fresh_only(view: Callable[P, R]) -> Callable[P, R | Response]:
    """For a view that takes a POST."""
    @wraps(view)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | Response:
        if now() - member().proven_at > sessions.FRESH:
            return ask(request.path)
        return view(*args, **kwargs)
    return guarded


def ask(path: str, form: Form | None = None) -> Response:
    """`path`: where the form goes afterwards. `form`: with what was wrong with the password."""
    kept = [(name, value) for name, value in request.form.items(multi=True) if name not in OWN]
    page = render_template("gate/proof.html", form=form or Form(PASSWORD), path=path, kept=kept, password=PASSWORD)
    return make_response(page, 422 if form else 403)
