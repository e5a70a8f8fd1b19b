"""What a browser calls itself, in words that its owner knows it by."""

from __future__ import annotations

from webapp.web.words import gettext

# The first that occurs: browsers name their ancestors, too (RFC 9110 section 10.1.5 leaves it to them).
_PROGRAMS = (("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chromium/", "Chromium"),
             ("Chrome/", "Chrome"), ("Safari/", "Safari"), ("curl/", "curl"))
_SYSTEMS = (("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"),
            ("Mac OS X", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux"))


def browser_of(agent: str) -> str:
    """Such as "Firefox, Linux"; it is a hint, since anybody can say anything."""
    known = [next((name for mark, name in marks if mark in agent), "") for marks in (_PROGRAMS, _SYSTEMS)]
    return ", ".join(filter(None, known)) or gettext("unknown browser")
