"""gettext without Flask, so that reasons and mails of the agent are translated by the same catalogues as the pages.

Messages are marked with `N_` where they are written and translated here where they are shown.
Catalogues: webapp/translations/<locale>/LC_MESSAGES/berth.po and .mo, both committed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from babel.support import NullTranslations, Translations

from webapp.errors import fill

DOMAIN = "berth"
FOLDER = Path(__file__).resolve().parent / "translations"
DEFAULT_LOCALE = "en"
LOCALES = {"en": "English", "zh_Hans_CN": "简体中文"}
# What browsers and people write → what the catalogues are called.
_ALIASES = {
    "zh": "zh_Hans_CN", "zh_cn": "zh_Hans_CN", "zh_sg": "zh_Hans_CN", "zh_hans": "zh_Hans_CN",
    "zh_hans_cn": "zh_Hans_CN", "zh_hans_sg": "zh_Hans_CN",
}


def translate(message: str, facts: Mapping[str, Any], locale: str | None) -> str:
    """`message` in that language with its `%(name)s` places filled; English where there is no translation."""
    return fill(translations(locale).ugettext(message) if message else "", facts)


def as_locale(tag: str | None) -> str | None:
    """The locale for a language tag such as `zh-CN`, `zh-Hans` or `en-GB`; None = none of ours."""
    if not tag:
        return None
    plain = tag.strip().replace("-", "_").lower()
    if plain in _ALIASES:
        return _ALIASES[plain]
    return "en" if plain.split("_")[0] == "en" else None


def translations(locale: str | None) -> NullTranslations:
    """The catalogue of a locale; an empty one, which answers in English, for a locale without."""
    return _load(as_locale(locale) or DEFAULT_LOCALE)


@functools.cache
def _load(locale: str) -> NullTranslations:
    return Translations.load(FOLDER, [locale], DOMAIN)
