"""Building an image by the API of the classic builder: no docker command, no BuildKit, the same from 20.10 to 29."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import docker.errors

from webapp.domain.images import BuildOutput
from webapp.engines import BuildCallback
from webapp.engines.docker.connection import Client
from webapp.engines.docker.output import readable
from webapp.engines.docker.stream import error_in, messages
from webapp.engines.docker.translation import refusal, short
from webapp.errors import BuildFailed, DiskFull, EngineError

SILENCE_SECONDS = 4 * 3600.0    # a compiler may say nothing for hours; whoever waits can end it
MOST_LINE = 4096                # characters; a progress bar without line ends goes on for ever

_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)", re.DOTALL)
# 20.10: "dockerfile parse error line 2: …"; 28 says "on line 2".
_UNREADABLE = re.compile(r"parse error (?:on )?line (\d+)")


def build(
    client: Client, context: bytes, reference: str, *, arguments: Mapping[str, str], host: str, tell: BuildCallback,
) -> None:
    """Build the tar archive `context`, whose Dockerfile is at its root, and tag it. `tell` may raise, which ends it.

    Raises: BuildFailed, DiskFull; what docker-py raises where there is no answer.
    """
    parameters = {
        "t": reference, "buildargs": json.dumps(dict(arguments)), "rm": "1", "forcerm": "1",
        "networkmode": "host",      # where only the machine's own network gets out
    }
    try:
        response = client.open_stream("POST", "/build", parameters, {"Content-Type": "application/x-tar"}, context)
    except docker.errors.APIError as error:
        raise _failure(error.explanation or error, _Printed(), host) from error
    with messages(response) as heard:
        follow(heard, host=host, tell=tell)


def follow(heard: Iterable[Mapping[str, Any]], *, host: str, tell: BuildCallback) -> None:
    """Read the builder's messages to the end; an empty one is a silence. Raises BuildFailed, DiskFull."""
    printed = _Printed()
    for message in heard:
        if sentence := error_in(message):
            tell(printed.rest())
            raise _failure(sentence, printed, host)
        tell(printed.add(str(message.get("stream") or "")))
    tell(printed.rest())


@dataclass(slots=True)
class _Printed:
    """What came of a line that has not ended, and how far the build is."""

    pending: str = ""
    step: int | None = None
    steps: int | None = None
    command: str = ""
    tail: list[str] = field(default_factory=list)   # of this step, for its error

    def add(self, text: str) -> BuildOutput:
        """The whole lines in it. Messages hold lines or pieces of them; a step has a message of its own."""
        if match := _STEP.fullmatch(text.rstrip("\n")):
            self.step, self.steps, self.command, self.tail = int(match[1]), int(match[2]), match[3], []
        whole, end, self.pending = f"{self.pending}{text}".replace("\r\n", "\n").replace("\r", "\n").rpartition("\n")
        if len(self.pending) > MOST_LINE:
            whole, end, self.pending = f"{whole}{end}{self.pending}", "\n", ""
        return self._output(f"{whole}{end}")

    def rest(self) -> BuildOutput:
        text, self.pending = f"{self.pending}\n" if self.pending else "", ""
        return self._output(text)

    def _output(self, text: str) -> BuildOutput:
        shown = readable(text.encode("utf-8", "replace"))
        self.tail = [*self.tail, *filter(None, shown.splitlines())][-10:]
        return BuildOutput(shown, self.step, self.steps)


def _failure(sentence: object, printed: _Printed, host: str) -> EngineError:
    error = refusal(sentence, host=host)
    if isinstance(error, DiskFull):
        return error
    detail = short(readable(str(sentence).encode("utf-8", "replace")))
    unreadable = _UNREADABLE.search(detail)
    return BuildFailed(
        host=host, detail=detail, step=printed.step, command=short(printed.command),
        line=int(unreadable[1]) if unreadable else None, last="\n".join(printed.tail))
