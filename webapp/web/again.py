"""A view that lost a dead-lock, or its connection before the commit, is called once more: nothing of it is there.

A view is one transaction (parse, one service call, answer), so calling it again is asking again. One that has written
something before it failed is not called again: that would happen twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import structlog
from flask import Flask, g, request
from sqlalchemy.exc import DBAPIError

from webapp.store.failures import may_be_tried_again

log = structlog.get_logger()

PAUSES_SECONDS = (0.05, 0.3)    # before each further try: the other one of a dead-lock goes on meanwhile
View = Callable[..., Any]


def install(app: Flask) -> None:
    """After all views are there."""
    for endpoint, view in app.view_functions.items():
        app.view_functions[endpoint] = _persistent(view)


def _persistent(view: View) -> View:
    @wraps(view)
    def tried(*args: Any, **kwargs: Any) -> Any:
        for pause in PAUSES_SECONDS:
            try:
                return view(*args, **kwargs)
            except DBAPIError as error:
                if g.get("has_written") or not may_be_tried_again(error):
                    raise
                log.info("web.again", request_id=g.get("request_id"), route=request.endpoint,
                         cause=type(error.orig).__name__)
            time.sleep(pause)
        return view(*args, **kwargs)
    return tried
