"""The web process: parse, authorise, one transaction, render. It reaches no engine and no host."""

from __future__ import annotations

from pathlib import Path

from flask import Flask
from flask_wtf.csrf import CSRFProtect

import webapp
from webapp.key_files import load_secret_key
from webapp.settings import Settings, house_rules
from webapp.store.session import Store
from webapp.web import again, answers, assets, auth, frame, guards, language, limits, shown
from webapp.web.context import EXTENSION, Berth, Clock, utc_now
from webapp.web.pages import (
    admin,
    audit,
    change,
    connections,
    gate,
    hold,
    home,
    images,
    keys,
    launch,
    me,
    people,
    quotas,
    save,
    teams,
    volumes,
    workspace,
)
from webapp.web.proxies import BehindProxies

PACKAGE = Path(webapp.__file__).parent
MOST_BODY_BYTES = 1024 * 1024
PAGES = (gate, home, launch, workspace, connections, change, save, keys, me, admin, hold, images, volumes, teams,
         quotas, people, audit)


def create_app(settings: Settings, store: Store, *, clock: Clock = utc_now) -> Flask:
    """The dashboard on one database. Makes the secret key if there is none yet."""
    app = Flask("webapp.web", template_folder=str(_beside("templates")), static_folder=None)
    app.secret_key = load_secret_key(settings)
    app.extensions[EXTENSION] = Berth(settings, store, clock, house_rules(settings))
    app.config.update(
        MAX_CONTENT_LENGTH=MOST_BODY_BYTES,
        MAX_FORM_MEMORY_SIZE=MOST_BODY_BYTES,
        WTF_CSRF_TIME_LIMIT=None,       # as long as the session; people leave pages open over night
        WTF_CSRF_SSL_STRICT=False,      # it wants a Referer, which our pages do not send; see guards.py
    )
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.wsgi_app = BehindProxies(app.wsgi_app, settings.trusted_proxies)    # type: ignore[method-assign]
    guards.install(app)
    auth.install(app, instance=settings.instance, secure=settings.url.startswith("https:"))
    CSRFProtect(app)
    limits.install(app)
    language.install(app)
    shown.install(app)
    answers.install(app)
    assets.install(app, _beside("static"))
    frame.install(app)
    for page in PAGES:
        app.register_blueprint(page.blueprint)
    again.install(app)
    return app


def _beside(name: str) -> Path:
    """In the package when installed from a wheel, beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name
