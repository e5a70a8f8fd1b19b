"""Log lines: event name first, then key=value. Never a token, a key, a password or an environment.

What is logged goes to standard error; who starts Berth decides where that ends up.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from webapp.errors import AppError

# Written by mistake they would be in every log that is kept. A name that holds one of these is blanked.
SECRET_WORDS = ("password", "token", "secret", "private_key", "authorization", "cookie")
BLANK = "…"
# One line each for every request and every connection of these; their warnings are wanted.
QUIET = ("alembic", "docker", "paramiko", "sqlalchemy", "urllib3", "werkzeug")


def configure(level: str, form: str, *, process: str, stream: TextIO | None = None) -> None:
    """Set up structlog and the standard library's logging, which libraries use, alike.

    Args:    level: debug | info | warning | error.   form: console | json.   process: "web", "agent", …, on every line.
    """
    out = stream or sys.stderr
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _Named(process),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _name_error,
        _blank_secrets,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(form, out)]))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _renderers(form: str, out: TextIO) -> list[structlog.typing.Processor]:
    # Plain tracebacks in both: the pretty ones print local variables, and tokens with them.
    if form == "json":
        as_json = structlog.processors.JSONRenderer(ensure_ascii=False)
        return [structlog.processors.format_exc_info, _event_first, as_json]
    return [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)]


class _Named:
    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        line.setdefault("process", self._process)
        return line


def _name_error(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """`error=exc` becomes its code and its sentence."""
    error = line.get("error")
    if isinstance(error, AppError):
        line["error"], line["detail"] = error.code, str(error)
    elif isinstance(error, BaseException):
        line["error"], line["detail"] = type(error).__name__, str(error)
    return line


def _blank_secrets(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in line:
        if any(word in key.lower() for word in SECRET_WORDS):
            line[key] = BLANK
    return line


def _event_first(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    first = {key: line[key] for key in ("timestamp", "level", "process", "event") if key in line}
    return {**first, **line}
