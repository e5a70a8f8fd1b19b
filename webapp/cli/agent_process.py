"""The agent put together from the settings. `berth up` starts it as `python -m webapp.cli.agent_process`:
without click and rich, which it has no use for and would keep in memory."""

from __future__ import annotations

import signal
import sys
import threading

from webapp import agent, logs
from webapp.cli.failure import exit_code, sentence
from webapp.errors import AppError
from webapp.settings import load_settings
from webapp.store.schema import check_current
from webapp.store.session import Store


def run_agent() -> None:
    """The agent until SIGTERM or SIGINT.

    Raises:  SettingsError, DatabaseBehind, DatabaseAhead, AgentAlreadyRuns.
    """
    settings = load_settings()
    logs.configure(settings.log_level, settings.log_format, process="agent")
    store = Store(settings.database_url)
    check_current(store)
    store.close()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    agent.run(settings, stop)


def main() -> int:
    try:
        run_agent()
    except AppError as error:
        print(f"berth agent: {sentence(error)}", file=sys.stderr)
        return exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
