"""Do web and agent live? Asked from outside, as anybody would see it."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from datetime import datetime, timedelta

from webapp.settings import Settings
from webapp.store.reads.house import sign_of_life
from webapp.store.session import Store

ALIVE_WITHIN = timedelta(seconds=15)    # the agent signs every 5 s
WEB_SECONDS = 5.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def agent_lives(store: Store, now: datetime, *, since: datetime | None = None) -> bool:
    """Whether the agent signed lately; with `since` also that it was started after that moment."""
    with store.read() as session:
        sign = sign_of_life(session)
    if sign is None or sign.alive_at is None or now - sign.alive_at > ALIVE_WITHIN:
        return False
    return since is None or (sign.started_at is not None and sign.started_at >= since)


def web_trouble(settings: Settings) -> str | None:
    """None = it answers at the address it listens on; else why not."""
    host, port = settings.listen_address
    host = _ANY.get(host, host)
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/healthz"
    try:
        with _direct.open(address, timeout=WEB_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        return f"{address} answers {error.code}"
    except OSError as error:
        return f"{address}: {getattr(error, 'reason', error)}"


def web_listens(settings: Settings) -> bool:
    """Whether anything does where web would, however it is."""
    host, port = settings.listen_address
    try:
        with socket.create_connection((_ANY.get(host, host), port), timeout=WEB_SECONDS):
            return True
    except OSError:
        return False


# Never by a proxy of the environment: the question is about this machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
