"""How often somebody may try to sign in.

Failures are counted per address and per account. A browser that has signed in to the account before has a count of its
own, so that strangers who guess passwords cannot lock its owner out (promises.md S21). Nothing is locked for good.
The address behind a reverse proxy is that of web.proxies: X-Forwarded-For of anybody else is not looked at.
"""

from __future__ import annotations

from flask import Flask, Response, request
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

from webapp.web.auth import known_device

PER_ADDRESS = "60 per 10 minutes"   # a whole lab may sit behind one address
PER_ACCOUNT = "10 per 10 minutes"

# One web process: counts in memory are complete, and a restart forgives.
limiter = Limiter(get_remote_address, storage_uri="memory://", strategy="moving-window")


def install(app: Flask) -> None:
    limiter.init_app(app)


def account() -> str:
    username = request.form.get("username", "")[:64].strip().lower()
    device = known_device(username)
    return f"device {device}" if device else f"account {username}"


def failed(response: Response) -> bool:
    return response.status_code >= 400
