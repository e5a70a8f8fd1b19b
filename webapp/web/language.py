"""Which language a person reads: of their account, else of a cookie, else of the browser."""

from __future__ import annotations

from flask import Flask, Response, request
from flask_babel import Babel, get_locale

from webapp.i18n import DEFAULT_LOCALE, DOMAIN, FOLDER, LOCALES, as_locale
from webapp.web.context import visitor

TAGS = {"en": "en", "zh_Hans_CN": "zh-Hans-CN"}     # locale id → what HTML and browsers call it
COOKIE = "berth_language"
YEAR_SECONDS = 365 * 24 * 3600


def install(app: Flask) -> None:
    app.config.update(BABEL_DEFAULT_LOCALE=DEFAULT_LOCALE, BABEL_DEFAULT_TIMEZONE="UTC",
                      BABEL_DOMAIN=DOMAIN, BABEL_TRANSLATION_DIRECTORIES=str(FOLDER))
    Babel(app, locale_selector=chosen)
    app.jinja_env.globals.update(languages=LOCALES, language_tags=TAGS, locale_id=current)


def chosen() -> str:
    person = visitor()
    wishes = (person.language if person else None, request.cookies.get(COOKIE))
    return next((wish for wish in wishes if wish in LOCALES), None) or _of_browser()


def current() -> str:
    return str(get_locale() or DEFAULT_LOCALE)


def remember(response: Response, language: str, *, secure: bool) -> None:
    response.set_cookie(COOKIE, language, max_age=YEAR_SECONDS, httponly=True, samesite="Lax", secure=secure)


def _of_browser() -> str:
    known = (as_locale(tag) for tag in request.accept_languages.values())
    return next(filter(None, known), DEFAULT_LOCALE)
