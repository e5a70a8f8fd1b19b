"""Every error becomes an answer here: a page for people, problem+json for scripts and for polling.

What a person sees is a sentence, what to do next, and the request's id; never a trace.
"""

from __future__ import annotations

import traceback
from http import HTTPStatus

import structlog
from flask import Flask, Response, g, jsonify, make_response, render_template, request
from flask_limiter.errors import RateLimitExceeded
from flask_wtf.csrf import CSRFError
from sqlalchemy.exc import InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException

from webapp.errors import N_, AppError, InvalidInput
from webapp.store.failures import CommitUnknown
from webapp.store.revisions import OtherVersion
from webapp.web.context import here
from webapp.web.shown import sentence
from webapp.web.words import gettext

log = structlog.get_logger()
BUSY_RETRY_SECONDS = 5
UPGRADE_RETRY_SECONDS = 30
POLL = "/poll/"     # paths that pages ask by themselves

SENTENCES = {
    400: N_("The browser sent something that Berth cannot read."),
    401: N_("You are signed out."),
    403: N_("Your account may not do this."),
    404: N_("There is nothing here with that address, or it is not yours."),
    405: N_("This address cannot be used that way."),
    413: N_("That is more than Berth takes at once."),
    421: N_("Berth is not known by that name."),
    429: N_("Too many tries."),
    500: N_("Something went wrong inside Berth."),
    503: N_("The database is busy."),
}
NEXT_STEPS = {
    400: N_("Go back, reload the page and try again."),
    401: N_("Sign in again."),
    403: N_("Ask an administrator."),
    404: N_("Go to your workspaces; what was removed is gone from there too."),
    405: N_("Go to your workspaces and start from there."),
    413: N_("Go back and send less."),
    421: N_("Open the dashboard at its own address."),
    429: N_("Wait a few minutes, then try again."),
    500: N_("Try again. If it stays, show the request's id to an administrator: it is in the log."),
    503: N_("Try again in a few seconds. Running workspaces do not notice."),
}
CSRF_SENTENCE = N_("This page was open for too long, or you signed in elsewhere, so its form is no longer valid.")

OTHER_VERSION_SENTENCE = N_("Berth is being upgraded. This page is still of the other version.")
OTHER_VERSION_STEP = N_("Reload in a minute. Workspaces do not notice. If it stays, tell an administrator: the web "
                        "process has to be started again.")


def install(app: Flask) -> None:
    app.register_error_handler(AppError, _app_error)
    app.register_error_handler(OtherVersion, _other_version)
    app.register_error_handler(CommitUnknown, _commit_unknown)
    app.register_error_handler(CSRFError, _csrf_error)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(OperationalError, _database_error)
    app.register_error_handler(PoolTimeout, _database_error)
    app.register_error_handler(InternalError, _internal_error)
    app.register_error_handler(Exception, _unexpected)


def wants_json() -> bool:
    if request.path.startswith(POLL):
        return True
    accepted = request.accept_mimetypes
    return accepted.best_match(("text/html", "application/json", "application/problem+json")) not in (None, "text/html")


def problem(status: int, code: str, title: str, *, advice: str = "", errors: tuple[tuple[str, str], ...] = (),
            retry: bool = False) -> Response:
    """One shape for every error; `advice` is what the reader can do."""
    if wants_json():
        response = jsonify(
            code=code, title=title, detail=advice, status=status, retry=retry, request_id=g.get("request_id", ""),
            errors=[{"field": field, "message": message} for field, message in errors],
        )
        response.mimetype = "application/problem+json"
    else:
        home = here().settings.url if status == 421 else "/"
        response = make_response(render_template("error.html", title=title, advice=advice, errors=errors, home=home))
    response.status_code = status
    return response


def _app_error(error: AppError) -> Response:
    if error.status >= 500:
        log.error("web.error", request_id=g.get("request_id"), code=error.code, facts=error.facts)
    errors = tuple((each.field, sentence(each.message, each.facts)) for each in error.problems) \
        if isinstance(error, InvalidInput) else ()
    title = sentence(error.title, error.facts)
    return problem(error.status, error.code, title, advice=_advice(error.status), errors=errors, retry=error.retry)


def _other_version(error: OtherVersion) -> Response:
    """An upgrade, made beside this process; the page for those who only see that it happens."""
    if not request.path.startswith(POLL):
        log.warning("web.other_version", request_id=g.get("request_id"), detail=str(error))
    response = problem(503, error.code, gettext(OTHER_VERSION_SENTENCE), advice=gettext(OTHER_VERSION_STEP), retry=True)
    response.headers["Retry-After"] = str(UPGRADE_RETRY_SECONDS)
    return response


def _commit_unknown(error: CommitUnknown) -> Response:
    log.error("web.error", request_id=g.get("request_id"), code=error.code)
    return problem(error.status, error.code, gettext(error.title), advice=gettext(NEXT_STEPS[405]))


def _csrf_error(_error: CSRFError) -> Response:
    return problem(400, "stale_form", gettext(CSRF_SENTENCE), advice=_advice(400))


def _http_error(error: HTTPException) -> Response:
    status = error.code or 500
    if status < 400 and error.response is not None:     # a redirect that was raised
        return make_response(error.response)
    title = gettext(SENTENCES[status]) if status in SENTENCES else error.name
    code = HTTPStatus(status).name.lower()
    response = problem(status, code, title, advice=_advice(status), retry=status in (429, 503))
    for name, value in error.get_headers():
        if name in ("Allow", "Retry-After"):
            response.headers[name] = value
    if isinstance(error, RateLimitExceeded):
        response.headers["Retry-After"] = str(error.limit.limit.get_expiry() if error.limit else 60)
    return response


def _database_error(error: Exception) -> Response:
    """Locked, full or gone: nothing was written, and it may pass by itself."""
    log.warning("web.database", request_id=g.get("request_id"), error=type(error).__name__,
                cause=str(getattr(error, "orig", "")))
    response = problem(503, "database_busy", gettext(SENTENCES[503]), advice=_advice(503), retry=True)
    response.headers["Retry-After"] = str(BUSY_RETRY_SECONDS)
    return response


def _internal_error(error: InternalError) -> Response:
    """PostgreSQL counts among these that it ended a transaction in which nothing happened for too long."""
    return _database_error(error) if error.connection_invalidated else _unexpected(error)


def _unexpected(error: Exception) -> Response:
    trace = "".join(traceback.format_exception(error))      # as text: some renderers print local variables too
    # The route, not the path: that may hold an invite.
    log.error("web.unexpected", request_id=g.get("request_id"), route=request.endpoint, trace=trace)
    return problem(500, "internal", gettext(SENTENCES[500]), advice=_advice(500))


def _advice(status: int) -> str:
    return gettext(NEXT_STEPS[status]) if status in NEXT_STEPS else ""
