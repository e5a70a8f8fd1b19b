"""How the two processes are started; imports neither of them."""

from __future__ import annotations

import sys
from pathlib import Path

from webapp.settings import Settings

CODE = Path(__file__).resolve().parent


def agent_command() -> list[str]:
    return [sys.executable, "-m", "webapp.cli.agent_process"]


def web_command(settings: Settings) -> list[str]:
    """gunicorn itself; what loads the application is its one worker."""
    return [sys.executable, "-m", "gunicorn", "--config", str(CODE / "gunicorn_conf.py"), "--bind", settings.listen,
            "webapp.cli.wsgi:make_app()"]


def announce_command() -> list[str]:
    return [sys.executable, "-m", "webapp.cli.announce"]


def supervisor_command(plan: str) -> list[str]:
    """By path, so that the package is not even imported."""
    return [sys.executable, str(CODE / "supervisor.py"), plan]
