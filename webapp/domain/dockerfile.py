"""Dockerfiles that an administrator writes as the base of an image: read and judged before anything is built.

They are built without a context (no files come along), by the builder that every engine from 20.10 on has; what that
one does not know is refused here, where the line can still be named.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from webapp.domain.names import excerpt
from webapp.domain.references import parse_pinned_reference
from webapp.errors import N_, FieldProblem, InvalidInput

MOST_CHARACTERS = 64 * 1024
NOTHING = "scratch"

_WORDS = frozenset((
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD",
    "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"))
_ESCAPE = re.compile(r"#\s*escape\s*=\s*([\\`])\s*", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*[A-Za-z][A-Za-z0-9]*\s*=.*")
_HEREDOC = re.compile(r"[0-9]*<<-?[^<\s]+")     # as BuildKit knows one: a word of its own
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Instruction:
    line: int       # where it begins, from 1
    word: str       # in capitals
    rest: str       # its continuation lines joined, comments between them left out

    @property
    def flags(self) -> list[str]:
        words = self.rest.split()
        return words[: next((n for n, each in enumerate(words) if not each.startswith("--")), len(words))]

    @property
    def arguments(self) -> list[str]:
        return self.rest.split()[len(self.flags):]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """One that was judged."""

    text: str
    bases: tuple[str, ...]      # images that it builds on or copies from, as people write them, each once

    def line_of_step(self, number: int) -> int | None:
        """The builder counts instructions from 1: `Step 3/7 : RUN …`."""
        instructions = read(self.text)
        return instructions[number - 1].line if 0 < number <= len(instructions) else None


def parse_dockerfile(text: str, field: str = "dockerfile") -> Dockerfile:
    """Raises InvalidInput with one problem for each line that cannot be used."""
    text = text.replace("\r\n", "\n")
    if len(text) > MOST_CHARACTERS:
        raise InvalidInput.of(field, N_("A Dockerfile may have at most %(most)d characters."), most=MOST_CHARACTERS)
    if "\0" in text:
        raise InvalidInput.of(field, N_("The Dockerfile holds a NUL character. Paste it as plain text."))
    instructions = read(text)
    if not any(each.word == "FROM" for each in instructions):
        raise InvalidInput.of(field, N_("A Dockerfile begins with FROM and an image, for example: FROM debian:12.11"))
    judge = _Judge(field)
    for each in instructions:
        judge.look_at(each)
        if judge.is_lost:
            break
    if judge.problems:
        raise InvalidInput(*judge.problems)
    return Dockerfile(text, tuple(dict.fromkeys(judge.bases)))


def read(text: str) -> list[Instruction]:
    """Every instruction in order, whatever it says."""
    lines = text.split("\n")
    escape, first = _directives(lines)
    found: list[Instruction] = []
    begun, parts = 0, list[str]()
    for number, line in enumerate(lines[first:], first + 1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue                # also in the middle of an instruction
        begun = begun or number
        goes_on = bare.endswith(escape)
        parts.append(bare[:-1] if goes_on else bare)
        if not goes_on:
            found.append(_instruction(begun, parts))
            begun, parts = 0, []
    return [*found, _instruction(begun, parts)] if parts else found


def _directives(lines: list[str]) -> tuple[str, int]:
    """What ends a line that goes on, and how many lines say such things."""
    escape = "\\"
    for number, line in enumerate(lines):
        if not _DIRECTIVE.fullmatch(line.strip()):
            return escape, number
        if match := _ESCAPE.fullmatch(line.strip()):
            escape = match[1]
    return escape, len(lines)


def _instruction(line: int, parts: list[str]) -> Instruction:
    word, _, rest = " ".join(parts).strip().partition(" ")
    return Instruction(line, word.upper(), rest.strip())


def _has_values(each: Instruction) -> bool:
    """The builder says that one has none, and not in which line. `NAME value` is the old way to write one of them."""
    try:
        words = shlex.split(each.rest)
    except ValueError:
        return True     # quotes that do not end: the builder has a word for it
    if not words or "=" in words[0]:
        return bool(words) and all("=" in word for word in words)
    return len(words) > 1


class _Judge:
    """Looks at one instruction after the other; what an ARG before the first FROM says may stand in a FROM."""

    def __init__(self, field: str) -> None:
        self.problems: list[FieldProblem] = []
        self.bases: list[str] = []
        self.is_lost = False        # what follows cannot be told from the lines of a text
        self._field = field
        self._stages: list[str] = []
        self._arguments: dict[str, str] = {}

    def look_at(self, each: Instruction) -> None:
        if each.word not in _WORDS:
            return self._refuse(each, N_("Line %(line)s: “%(given)s” is no instruction of a Dockerfile."),
                                given=excerpt(each.word))
        if not self._stages and each.word not in ("FROM", "ARG"):
            return self._refuse(each, N_("Line %(line)s: only ARG may stand before the first FROM."))
        if each.word in ("RUN", "COPY", "ADD") and any(map(_HEREDOC.fullmatch, each.rest.split())):
            self.is_lost = True
            return self._refuse(each, N_("Line %(line)s: not every engine knows texts after “<<”. Write the commands "
                                         "with “&& \\” between them."))
        match each.word:
            case "ARG":
                self._arg(each)
            case "FROM":
                self._from(each)
            case "RUN" if each.flags:
                self._refuse(each, N_("Line %(line)s: not every engine knows %(given)s. Leave it out."),
                             given=excerpt(each.flags[0]))
            case "COPY":
                self._copy(each)
            case "ADD" if not all(source.startswith(("http://", "https://")) for source in each.arguments[:-1]):
                self._no_files(each)
            case "ENV" | "LABEL" if not _has_values(each):
                self._refuse(each, N_("Line %(line)s: write %(word)s with a name and a value, NAME=value."),
                             word=each.word)
            case "VOLUME":
                self._refuse(each, N_("Line %(line)s: VOLUME is refused, because what is written there would be lost. "
                                      "Leave it out."))
            case "ONBUILD":
                self._refuse(each, N_("Line %(line)s: ONBUILD is for images that others build on. Leave it out."))

    def _arg(self, each: Instruction) -> None:
        for word in each.arguments if not self._stages else ():
            name, _, value = word.partition("=")
            self._arguments[name] = value.strip("\"'")

    def _from(self, each: Instruction) -> None:
        words = each.arguments
        named = len(words) == 3 and words[1].upper() == "AS"
        if each.flags or not (len(words) == 1 or named):
            self._refuse(each, N_("Line %(line)s: write FROM and an image, and “AS name” if a later stage needs it."))
        else:
            self._note_base(each, _VARIABLE.sub(self._value, words[0]))
        self._stages.append(words[2].lower() if named else "")

    def _value(self, match: re.Match[str]) -> str:
        return self._arguments.get(match[1] or match[2]) or match[0]

    def _copy(self, each: Instruction) -> None:
        sources = [flag.partition("=")[2] for flag in each.flags if flag.startswith("--from=")]
        if not sources:
            self._no_files(each)
        elif not sources[0].isdigit():
            self._note_base(each, sources[0])

    def _no_files(self, each: Instruction) -> None:
        self._refuse(each, N_("Line %(line)s: %(word)s takes files, and none come along with a Dockerfile. Fetch them "
                              "in a RUN, or copy them from an image: COPY --from=IMAGE …"), word=each.word)

    def _note_base(self, each: Instruction, name: str) -> None:
        if name == NOTHING or name.lower() in self._stages:
            return
        try:
            self.bases.append(parse_pinned_reference(name, self._field).familiar)
        except InvalidInput:
            self._refuse(each, N_("Line %(line)s: “%(given)s” is no image with a fixed version. Write it with a tag "
                                  "that is not latest, or with a digest: debian:12.11"), given=excerpt(name))

    def _refuse(self, each: Instruction, message: str, **facts: object) -> None:
        self.problems.append(FieldProblem(self._field, message, {"line": each.line, **facts}))
