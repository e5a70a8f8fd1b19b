"""Before a view and after it: whose host name was asked for, which request this is, what a browser may do with it."""

from __future__ import annotations

import ipaddress
import secrets
from urllib.parse import urlsplit

from flask import Flask, Response, g, redirect, request
from werkzeug.exceptions import BadRequest, HTTPException
from werkzeug.wrappers import Response as AnyResponse

from webapp.settings import Settings
from webapp.web.context import here

OPEN_TO_PROBES = ("gate.healthz",)   # a load balancer asks by address
SAFE = ("GET", "HEAD", "OPTIONS")


class Misdirected(HTTPException):
    """Asked for by a name that is not the dashboard's."""

    code = 421


def install(app: Flask) -> None:
    app.before_request(_name_request)
    app.before_request(_check_host)
    app.before_request(_refuse_foreign_forms)
    app.after_request(_add_headers)
    app.jinja_env.globals["nonce"] = nonce


def nonce() -> str:
    """For the inline scripts of this answer; without one of them the policy names no nonce."""
    if "nonce" not in g:
        g.nonce = secrets.token_urlsafe(16)
    return str(g.nonce)


def allow_form_to(origin: str) -> None:
    """Let this answer's form post to `origin` (scheme://host:port), and nothing else of it leave."""
    g.form_origin = origin


def _name_request() -> None:
    g.request_id = secrets.token_hex(6)


def _check_host() -> AnyResponse | None:
    """A page that is reached by a name of somebody else's could be read by that somebody (DNS rebinding).

    The address that the server listens on is often the workspaces' host name, whose every port would get our cookie:
    so people who come that way are sent on to the dashboard's own name before a cookie is set.
    """
    settings = here().settings
    name = _host_name(request.host)
    if request.endpoint in OPEN_TO_PROBES or name == _host_name(urlsplit(settings.url).netloc):
        return None
    if request.method in ("GET", "HEAD") and _is_own_address(name, settings):
        return redirect(settings.url + request.full_path.rstrip("?"), code=307)
    raise Misdirected()


def _host_name(netloc: str) -> str:
    """Without the port, which differs behind a tunnel and adds no safety: cookies ignore it too."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_own_address(name: str, settings: Settings) -> bool:
    listens = settings.listen_address[0]
    if name == listens:
        return True
    try:
        return ipaddress.ip_address(listens).is_loopback and name in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        return False


def _refuse_foreign_forms() -> None:
    """A second lock beside the CSRF token. Origin is of no use: under Referrer-Policy no-referrer it says “null”."""
    if request.method not in SAFE and request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        raise BadRequest()


def _add_headers(response: Response) -> Response:
    headers = response.headers
    headers["X-Request-ID"] = g.get("request_id", "")
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Referrer-Policy"] = "no-referrer"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers["Permissions-Policy"] = "camera=(), geolocation=(), microphone=()"
    headers["Content-Security-Policy"] = _policy()
    if here().settings.url.startswith("https:"):
        headers["Strict-Transport-Security"] = "max-age=31536000"
    if request.endpoint != "static":
        headers["Cache-Control"] = "no-store"
    return response


def _policy() -> str:
    scripts = f"'self' 'nonce-{g.nonce}'" if "nonce" in g else "'self'"
    forms = f"'self' {g.form_origin}" if "form_origin" in g else "'self'"
    return "; ".join((
        "default-src 'self'", f"script-src {scripts}", "style-src 'self'", "img-src 'self' data:",
        "object-src 'none'", "base-uri 'none'", f"form-action {forms}", "frame-ancestors 'none'",
    ))
