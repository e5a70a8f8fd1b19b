"""Says that Berth is up, and where. `berth up` runs it once beside web and agent, and it ends."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta

from webapp.cli.demo_mark import welcome
from webapp.cli.failure import exit_code, sentence
from webapp.cli.house import now, open_house
from webapp.cli.signs import agent_lives, web_trouble
from webapp.cli.user import welcome_link
from webapp.errors import AppError
from webapp.services import people
from webapp.settings import Settings
from webapp.store.session import Store

READY_SECONDS = 60.0
STARTED_BEFORE = timedelta(seconds=5)   # the agent was started a moment before this process


def main() -> int:
    try:
        with open_house() as house:
            return _announce(house.settings, house.store)
    except AppError as error:
        print(f"berth: {sentence(error)}", file=sys.stderr)
        return exit_code(error)


def _announce(settings: Settings, store: Store) -> int:
    trouble = _wait(settings, store, began=now() - STARTED_BEFORE)
    if trouble:
        print(f"berth: not ready after {READY_SECONDS:.0f} s: {trouble}. “berth doctor” says more.", file=sys.stderr)
        return 1
    with store.write() as session:
        token = people.first_admin_token(session, now=now())
    lines = [f"Berth is up: {settings.url}"]
    if token:
        lines += ["Make the first administrator with this link; it works once, for 24 hours:",
                  welcome_link(settings.url, token)]
    lines += [*welcome(settings, store), "Ctrl-C stops web and agent, never a workspace."]
    print("\n" + "\n".join(f"  {line}" for line in lines) + "\n", flush=True)   # at once: others write here too
    return 0


def _wait(settings: Settings, store: Store, *, began: datetime) -> str | None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        trouble = web_trouble(settings)
        if trouble is None and agent_lives(store, now(), since=began):
            return None
        if time.monotonic() >= deadline:
            return trouble or "the agent gives no sign of life"
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
