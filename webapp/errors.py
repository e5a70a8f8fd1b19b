"""Every error that Berth names: one class each, with a stable code, an HTTP status and a sentence.

An error is raised with facts, never with a finished sentence: `raise NoFreePort(host="gpu1")`.
The sentence is `title`, a message id for translation; the facts fill its `%(name)s` places when it is shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


def N_(message: str) -> str:
    """Mark `message` for translation and return it as it is; it is translated where it is shown."""
    return message


class AppError(Exception):
    """Root of the tree. `retry` says whether the same request may succeed later without a change."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retry: ClassVar[bool] = False
    title: ClassVar[str] = N_("Something went wrong inside Berth.")

    def __init__(self, **facts: Any) -> None:
        super().__init__(self.code)
        self.facts: dict[str, Any] = facts

    def __str__(self) -> str:
        """English sentence with the facts filled in, for logs and for the command line."""
        return fill(self.title, self.facts)


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing wrong with one field of what a person sent.

    `message` is a message id with `%(fact)s` places; it names a way out.
    """

    field: str
    message: str
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.field}: {fill(self.message, self.facts)}"


class InvalidInput(AppError):
    """What was sent cannot be used; each problem names its field."""

    code, status = "invalid_input", 422
    title = N_("Some of what you entered cannot be used.")

    def __init__(self, *problems: FieldProblem) -> None:
        super().__init__()
        self.problems = problems

    @classmethod
    def of(cls, name: str, message: str, **facts: Any) -> InvalidInput:
        """One problem: `InvalidInput.of("memory", N_("…"), given=text)`."""
        return cls(FieldProblem(name, message, facts))

    def __str__(self) -> str:
        return "; ".join(str(problem) for problem in self.problems)


class NotFound(AppError):
    """Nothing with that id, or not for this person: both look alike from outside."""

    code, status = "not_found", 404
    title = N_("There is nothing here with that address, or it is not yours.")


class Forbidden(AppError):
    code, status = "forbidden", 403
    title = N_("Your account may not do this.")


class Conflict(AppError):
    """The thing is in a state that does not allow the request now."""

    code, status, retry = "conflict", 409, True
    title = N_("That cannot be done now: the workspace is %(phase)s.")


class StaleForm(AppError):
    """Somebody else has changed it since it was read."""

    code, status = "stale_form", 409
    title = N_("Somebody else has changed this since you opened it. Look at it as it is now, then change it again.")


class AlreadyTaken(AppError):
    code, status = "already_taken", 409
    title = N_("%(what)s is already taken.")


class NoFreePort(AppError):
    code, status, retry = "no_free_port", 409, True
    title = N_(
        "All ports from %(first)d to %(last)d are taken. An administrator can widen the range or "
        "remove old workspaces."
    )


class NoCapacity(AppError):
    """Facts beyond the sentence, as domain.placement.NoPlacement gives them: why, next_best."""

    code, status, retry = "no_capacity", 409, True
    title = N_(
        "The GPUs asked for are not free now: %(wanted)d wanted, at most %(largest_free)d to be had on one host."
    )


class NoHost(AppError):
    code, status, retry = "no_host", 409, True
    title = N_("No host can take this workspace now: %(why)s")


class ImageInUse(AppError):
    """Facts: title, count, owners (their names, in one text)."""

    code, status, retry = "image_in_use", 409, True
    title = N_("%(title)s is in use by %(count)s workspaces, of %(owners)s. They have to be removed first.")


class ImageBusy(AppError):
    code, status, retry = "image_busy", 409, True
    title = N_("Something else is being done with %(title)s just now. Wait for its end, or cancel it.")


class NotFromRegistry(AppError):
    """What was saved, or is built from a Dockerfile, is in no registry."""

    code, status = "not_from_registry", 409
    title = N_("%(title)s was made here and is in no registry, so it cannot be pulled.")


class NotPrepared(AppError):
    """A ready workspace image, or a saved one: there is no base to build on."""

    code, status = "not_prepared", 409
    title = N_("%(title)s is ready as it is: there is nothing to prepare.")


class SettingsError(AppError):
    """A setting cannot be used; Berth refuses to start."""

    code, status = "bad_setting", 500
    title = N_("%(name)s cannot be used: %(why)s")


class AgentAlreadyRuns(AppError):
    """`pid` is "?" where the process cannot be seen from here."""

    code, status = "agent_already_runs", 409
    title = N_("Another agent runs already on the state folder %(folder)s, as process %(pid)s. Stop it first.")


class AgentRunsElsewhere(AgentAlreadyRuns):
    """On PostgreSQL: from another state folder, perhaps on another server."""

    title = N_("Another agent runs already on the database %(database)s. Stop it first.")


class EngineError(AppError):
    """Root of what a container engine can answer. Adapters translate into one of these at the border."""

    code, status = "engine_error", 502
    title = N_("The container engine on %(host)s reported: %(detail)s")


class EngineUnreachable(EngineError):
    """No answer, or none in time: what was asked may or may not have happened."""

    code, status, retry = "engine_unreachable", 503, True
    title = N_("The container engine on %(host)s does not answer: %(detail)s")


class EngineRejected(EngineError):
    """The engine understood and said no."""

    code, status = "engine_rejected", 502
    title = N_("The container engine on %(host)s refused: %(detail)s")


class PortTaken(EngineRejected):
    """Something that is not Berth's listens on the port already (moby: "port is already allocated")."""

    code, status, retry = "port_taken", 409, True
    title = N_("Port %(port)s on %(host)s is taken by another program.")


class GpusRefused(EngineRejected):
    """The NVIDIA toolkit did not hand the cards out: its driver is late, or a card is gone (promises.md 33, 34)."""

    code, status, retry = "gpus_refused", 502, True
    title = N_("The GPUs could not be handed out on %(host)s: %(detail)s")


class DiskFull(EngineRejected):
    code, status, retry = "disk_full", 507, True
    title = N_("The disk of %(host)s is full: %(detail)s")


class ImageNotFound(EngineError):
    """There is no such image: not on the engine, and not in its registry."""

    code, status = "image_not_found", 404
    title = N_("The image %(image)s cannot be had on %(host)s: %(detail)s")


class RegistryRefused(EngineError):
    """The registry wants a login, or another one."""

    code, status = "registry_refused", 502
    title = N_("The registry does not give the image %(image)s to %(host)s: %(detail)s")


class PullFailed(EngineError):
    """A pull was broken off on the way, by the network or the registry."""

    code, status, retry = "pull_failed", 502, True
    title = N_("The image %(image)s could not be pulled to %(host)s: %(detail)s")


class BuildFailed(EngineError):
    """Facts: detail; step (from 1) and command of the instruction that failed; line of a text that cannot be read."""

    code, status = "build_failed", 502
    title = N_("The image could not be built on %(host)s: %(detail)s")


class ImageHeld(EngineRejected):
    code, status, retry = "image_held", 409, True
    title = N_("The image is in use by a container on %(host)s: %(detail)s")


def fill(message: str, facts: Mapping[str, Any]) -> str:
    """Put `facts` into the `%(name)s` places of `message`; a message without places is returned unchanged."""
    return message % facts if facts else message
