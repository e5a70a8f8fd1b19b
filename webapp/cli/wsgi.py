"""What gunicorn's worker loads."""

from __future__ import annotations

import logging
import sys

from flask import Flask
from gunicorn.arbiter import Arbiter

from webapp import logs
from webapp.cli.failure import sentence
from webapp.errors import AppError
from webapp.key_files import load_data_keys, seal_of
from webapp.settings import load_settings
from webapp.store.schema import check_current
from webapp.store.session import Store
from webapp.web import create_app


def make_app() -> Flask:
    """The application over the database of the settings; an error with a name ends gunicorn with its sentence."""
    try:
        settings = load_settings()
        logs.configure(settings.log_level, settings.log_format, process="web")
        _take_over_gunicorns_lines()
        store = Store(settings.database_url, seal=seal_of(settings))
        load_data_keys(settings)
        check_current(store)
        return create_app(settings, store)
    except AppError as error:
        print(f"berth web: {sentence(error)}", file=sys.stderr)
        sys.exit(Arbiter.APP_LOAD_ERROR)    # any other code, and the worker is started again without a pause


def _take_over_gunicorns_lines() -> None:
    """Its warnings in the form of ours."""
    log = logging.getLogger("gunicorn.error")
    log.handlers.clear()
    log.propagate = True
