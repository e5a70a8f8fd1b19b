"""Why something is as it is, and what to do next: the sentences that people read beside a phase.

A row keeps code and facts; the sentence is looked up, translated and filled where it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webapp.errors import N_


@dataclass(frozen=True, slots=True)
class Reason:
    code: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "facts": dict(self.facts)}


@dataclass(frozen=True, slots=True)
class Wording:
    """Two message ids: what happened, and what the reader can do."""

    title: str
    next: str


WORDINGS: dict[str, Wording] = {
    "stopped_outside": Wording(
        N_("Stopped outside Berth: somebody stopped its container by hand on %(host)s."),
        N_("Press Start when you want it back. Nothing in it was lost."),
    ),
    "removed_outside": Wording(
        N_("Its container was removed outside Berth on %(host)s."),
        N_(
            "Your home is untouched. Press Start for a fresh container of the same image; what was "
            "installed in the old one is gone."
        ),
    ),
    "restarted_engine": Wording(
        N_("%(host)s or its Docker Engine was restarted; the workspace was started again."),
        N_("Programs that ran in it have to be started again."),
    ),
    "crashed": Wording(
        N_("Its main process ended by itself with exit code %(exit_code)s, %(tries)s times."),
        N_("Look at the last log lines below, then press Start to try again."),
    ),
    "crashed_retry": Wording(
        N_(
            "Its main process ended by itself with exit code %(exit_code)s; it is being started again "
            "(try %(tries)s of %(limit)s)."
        ),
        N_("Nothing to do: Berth tries again by itself."),
    ),
    "out_of_memory": Wording(
        N_("It used all of its %(memory)s of memory and was ended by the kernel."),
        N_("Launch one with more memory, or load less at once, then press Start."),
    ),
    "child_out_of_memory": Wording(
        N_(
            "A program in it used all of its %(memory)s of memory and was ended by the kernel at "
            "%(at)s. The workspace itself goes on."
        ),
        N_("Load less at once, or launch a workspace with more memory."),
    ),
    "image_not_found": Wording(
        N_("The image %(image)s cannot be had on %(host)s: %(detail)s"),
        N_("Choose another image, or ask an administrator to prepare this one."),
    ),
    "image_has_volumes": Wording(
        N_(
            "The image %(image)s declares VOLUME %(volumes)s; data written there would be lost "
            "silently, so it is refused."
        ),
        N_("Choose another image, or build one without VOLUME."),
    ),
    "image_not_workspace": Wording(
        N_("The image %(image)s is no workspace image: it has no SSH server of Berth's in it."),
        N_("Ask an administrator to prepare it: berth image prepare."),
    ),
    "engine_unreachable": Wording(
        N_("%(host)s does not answer since %(since)s. Nothing was changed or freed; what runs there goes on."),
        N_("Wait, or ask an administrator to look at the host."),
    ),
    "engine_rejected": Wording(
        N_("The container engine on %(host)s refused: %(detail)s"),
        N_("Press Start to try again; if it stays, show this sentence to an administrator."),
    ),
    "disk_full": Wording(
        N_("The disk of %(host)s is full: %(detail)s"),
        N_("Ask an administrator to make room, then press Start."),
    ),
    "gpus_refused": Wording(
        N_("The GPUs could not be handed out on %(host)s: %(detail)s"),
        N_("Berth tries again by itself. If it stays, an administrator has to look at the NVIDIA toolkit of the host."),
    ),
    "gpus_not_read": Wording(
        N_("The GPUs of %(host)s could not be looked at yet."),
        N_("Nothing to do: Berth tries again by itself."),
    ),
    "gpus_not_held": Wording(
        N_("It is to have %(wanted)s GPUs and holds %(held)s."),
        N_("Press Start: it gets GPUs again when enough are free."),
    ),
    "gpus_differ": Wording(
        N_("Other GPUs were in it than those that it holds: %(seen)s instead of %(held)s. It was stopped."),
        N_("Show this sentence to an administrator: the container engine or the NVIDIA toolkit hands out wrong GPUs."),
    ),
    "gpus_unseen": Wording(
        N_("nvidia-smi inside found no GPUs: %(detail)s"),
        N_("Press Start to try again; if it stays, show this sentence to an administrator."),
    ),
    "gpus_changed": Wording(
        N_("The GPUs that it had before were not to be had when it was started. Now it has %(gpus)s."),
        N_("Nothing to do: what you installed is still there. Programs that name a GPU by its UUID need the new one."),
    ),
    "no_free_port": Wording(
        N_("All ports of the range on %(host)s are taken."),
        N_("Ask an administrator to widen the range or to remove old workspaces."),
    ),
    "port_replaced": Wording(
        N_("Port %(old)s was taken by another program on %(host)s; %(service)s now listens on port %(new)s."),
        N_("Copy the connection lines again; the host key is the same."),
    ),
    "keys_new": Wording(
        N_("Its keys were lost: they were not in the backup that was restored, and its own copy is gone too. It has "
           "new ones."),
        N_("ssh warns once of a changed host key: replace its line in known_hosts with the one on this page."),
    ),
    "not_ready": Wording(
        N_("%(service)s did not answer within %(seconds)s seconds."),
        N_("Look at the last log lines below, then press Start to try again."),
    ),
    "service_down": Wording(
        N_("%(service)s does not answer since %(since)s."),
        N_("It is restarted by itself inside the workspace; if it stays, stop and start the workspace."),
    ),
    "owner_inactive": Wording(
        N_("The account of its owner is not active."),
        N_("An administrator can activate the account again."),
    ),
    "image_withdrawn": Wording(
        N_("The image %(image)s was withdrawn from the catalogue before the workspace was made."),
        N_("Remove this workspace and launch one of another image."),
    ),
    "over_quota": Wording(
        N_("Its owner would have more at once than their quota allows."),
        N_("Stop another workspace, or have an administrator raise the quota; then start this one again."),
    ),
    "limit_refused": Wording(
        N_("It asks for more %(limit)s than this house allows, or for too little to run at all."),
        N_("Remove this workspace and launch one with other limits."),
    ),
    "volume_refused": Wording(
        N_("The volume %(volume)s cannot be mounted: %(detail)s"),
        N_("Ask an administrator to mend the folder, then press Start."),
    ),
    "retrying": Wording(
        N_("%(detail)s Trying again at %(at)s (try %(tries)s)."),
        N_("Nothing to do: Berth tries again by itself."),
    ),
    "expired": Wording(
        N_("Nobody took this up in time: the agent was not running."),
        N_("Ask an administrator whether the agent runs, then try again."),
    ),
    "not_running": Wording(
        N_("The workspace does not run."),
        N_("Start it first."),
    ),
    "data_key_missing": Wording(
        N_("Its keys in the database were sealed with a data_key that is not there any more."),
        N_("An administrator puts the former file back, or has the keys read back from the workspace: "
           "berth key forget"),
    ),
    "internal": Wording(
        N_("Something went wrong inside Berth: %(detail)s"),
        N_("Try again; if it stays, show this sentence to an administrator."),
    ),
}
