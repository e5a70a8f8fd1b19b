"""What a person typed into a form, kept whatever is wrong with it, and what is wrong, beside its field.

Meaning is judged by the services; here only what no field may hold: NUL (PostgreSQL refuses it in text) and more than
the field's limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from flask import request
from werkzeug.datastructures import MultiDict

from webapp.errors import N_, AppError, FieldProblem, InvalidInput
from webapp.web.shown import sentence
from webapp.web.words import gettext

MOST_LINE = 1000        # characters; above every domain limit, so that those answer with their own sentence
MOST_TEXT = 400_000     # fifty RSA keys and their comments
GENERAL = ""            # problems of no field of this form


class Form:
    """Values of the fields `names`; a field that was not sent is "". Call `check` before using them."""

    def __init__(self, *names: str, long: tuple[str, ...] = (), **defaults: str) -> None:
        sent = request.form if request.method == "POST" else {}
        self._limits = {name: MOST_TEXT if name in long else MOST_LINE for name in (*names, *long, *defaults)}
        # A browser that was given a default sends it back; so a field that is missing from what was sent is empty.
        source = sent or defaults
        self.values = {name: source.get(name, "") for name in self._limits}
        self.problems: dict[str, list[str]] = {}

    @classmethod
    def half_filled(cls, *names: str) -> Form:
        """Out of the query: a page asks by itself what its form would do as it is now."""
        form = cls(*names)
        form.values = {name: request.args.get(name, "") for name in names}
        return form

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def check(self) -> None:
        """Raises InvalidInput for what no field may hold."""
        invisible = N_("This holds an invisible character (NUL). Type it instead of pasting it.")
        long = N_("This is longer than %(most)d characters. Shorten it.")
        problems = [
            *(FieldProblem(name, invisible) for name, value in self.values.items() if "\x00" in value),
            *(FieldProblem(name, long, {"most": most}) for name, most in self._limits.items()
              if len(self.values[name]) > most),
        ]
        if problems:
            raise InvalidInput(*problems)

    def refused(self, error: AppError, renamed: Mapping[str, str] | None = None) -> Form:
        """Keep what `error` says. `renamed`: a service's name of a field → this form's."""
        renamed = renamed or {}
        if isinstance(error, InvalidInput):
            for problem in error.problems:
                field = renamed.get(problem.field, problem.field)
                self._add(field if field in self._limits else GENERAL, sentence(problem.message, problem.facts))
        else:
            self._add(GENERAL, sentence(error.title, error.facts))
        return self

    def refuse(self, field: str, message: str) -> Form:
        self._add(field, gettext(message))
        return self

    def _add(self, field: str, text: str) -> None:
        self.problems.setdefault(field, []).append(text)


def what_was_sent() -> MultiDict[str, str]:
    """A form, or what a GET has in its query."""
    return request.form if request.method == "POST" else request.args


def ticked(name: str) -> bool:
    return name in request.form


def chosen(name: str) -> list[str]:
    """All values of one name, as of checkboxes; at most 200, each once."""
    return list(dict.fromkeys(what_was_sent().getlist(name)))[:200]
