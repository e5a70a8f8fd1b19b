"""Exit codes of `berth`, and how an error is told on a terminal."""

from __future__ import annotations

from webapp.errors import N_, AppError, EngineUnreachable, InvalidInput, NotFound
from webapp.store.revisions import OtherVersion

FAILED = 1          # anything not named below
USAGE = 2           # click's own for wrong arguments; values that a service refuses end the same way
NOT_FOUND = 3
REFUSED = 4         # not in this state, or taken already
NOT_REACHED = 5     # the engine or the agent does not answer
OTHER_VERSION = 6   # the tables are those of another Berth; starting again changes nothing about it
INTERRUPTED = 130   # 128 + SIGINT, as shells have it


class NoSuch(NotFound):
    """A name on the command line that nothing has."""

    title = N_("There is no %(what)s called “%(name)s”. “berth %(what)s list” shows all.")


class AgentSilent(AppError):
    """The agent does not run, or hangs: what was asked stays written down until it does."""

    code, status, retry = "agent_silent", 503, True
    title = N_("The agent does not run. Start it: berth up")


class RunsAlready(AppError):
    """A second `berth up` on the same state folder."""

    code, status = "runs_already", 409
    title = N_("Berth runs already from %(folder)s, as process %(pid)s. Stop that one first, or set BERTH_STATE_DIR "
               "to run another.")


class AddressTaken(AppError):
    code, status = "address_taken", 409
    title = N_("%(address)s cannot be listened on: %(why)s. Choose another with BERTH_LISTEN.")


class StateUnusable(AppError):
    """The database or its folder cannot be used by this account."""

    code, status = "state_unusable", 500
    title = N_("The database %(path)s cannot be used: %(why)s. Run as the account that owns it, or set "
               "BERTH_STATE_DIR.")


class WriteUndone(AppError):
    """On PostgreSQL: lost a dead-lock, or the connection broke before the commit."""

    code, status, retry = "write_undone", 503, True
    title = N_("The database has undone this, because others wrote at the same time or it went away. Do it again.")


def exit_code(error: AppError) -> int:
    if isinstance(error, InvalidInput):
        return USAGE
    if isinstance(error, (EngineUnreachable, AgentSilent)):
        return NOT_REACHED
    if isinstance(error, OtherVersion):
        return OTHER_VERSION
    return {404: NOT_FOUND, 403: REFUSED, 409: REFUSED}.get(error.status, FAILED)


def sentence(error: AppError) -> str:
    """Field names are the web's; on a terminal they read as words."""
    if isinstance(error, InvalidInput):
        return "\n".join(f"{problem.field.replace('_', ' ')}: {str(problem).partition(': ')[2]}"
                         for problem in error.problems)
    return str(error)
