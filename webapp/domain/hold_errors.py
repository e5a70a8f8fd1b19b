"""What cannot be done while Berth is on hold, or cannot be decided then."""

from __future__ import annotations

from webapp.errors import N_, AppError


class OnHold(AppError):
    """What was asked for would claim a GPU, and whether it is free is not sure."""

    code, status, retry = "on_hold", 409, True
    title = N_("Berth is on hold, so nothing with GPUs can be launched or started: it is not sure which are free. Try "
               "again when an administrator has ended the hold, or go on without GPUs.")


class NotOnHold(AppError):
    code, status = "not_on_hold", 409
    title = N_("Berth is not on hold.")


class AlreadyOnHold(AppError):
    code, status = "already_on_hold", 409
    title = N_("Berth is on hold already.")


class NoFinding(AppError):
    """Somebody may have put it right by hand meanwhile."""

    code, status = "no_finding", 404
    title = N_("There is no difference about “%(name)s” to decide on, or not any more.")


class NotADecision(AppError):
    """`why`: a message id of its own, or "" where that kind of difference has no such way out."""

    code, status = "not_a_decision", 409
    title = N_("“%(decision)s” cannot be decided about %(name)s. %(why)s")


class FindingChanged(AppError):
    """What runs, or what the row says, is not as it was when somebody looked."""

    code, status, retry = "finding_changed", 409, True
    title = N_("About %(name)s something has changed since you looked. Nothing was decided: look again.")


class Undecided(AppError):
    code, status = "hold_undecided", 409
    title = N_("The hold cannot end yet: nothing is decided about %(names)s.")


class HoldBlind(AppError):
    """An agent that does not look, or an engine that does not answer: nobody knows what runs."""

    code, status, retry = "hold_blind", 409, True
    title = N_("The hold cannot end now: nobody has looked a moment ago at what runs on %(host)s. The agent has to "
               "run, and the host's engine to answer.")


class HoldClash(AppError):
    """Two would have the same. Facts: what ("port 20001", or a GPU), one, other: workspaces."""

    code, status = "hold_clash", 409
    title = N_("The hold cannot end like this: %(one)s and %(other)s would both have %(what)s. Decide otherwise about "
               "one of them, or stop its container by hand. Nothing was changed.")
