"""`berth`: finds the command, runs it, and turns every named error into one sentence and an exit code."""

from __future__ import annotations

import importlib
import os
import sys

import click

from webapp.cli.failure import INTERRUPTED, exit_code, sentence
from webapp.errors import AppError

# Each is a module of this package; it is imported only when it is used, so that `berth --help` is quick.
COMMANDS = {
    "up": "Set up what is missing, then run web and agent until Ctrl-C.",
    "demo": "Berth with simulated GPUs and sample members, beside any other: start, clean, and all the rest.",
    "web": "Run the web process alone.",
    "agent": "Run the agent alone.",
    "migrate": "Bring the database to what this version expects.",
    "doctor": "Check settings, database, agent, engine, GPUs and images; say what to do.",
    "settings": "Show every setting, its value and where it comes from.",
    "user": "Members: add, list, password, invite.",
    "team": "Teams: add, list, join, leave.",
    "volume": "Team volumes: add, list, remove.",
    "image": "Images to launch from: add, list, prepare, pull, withdraw, delete.",
    "gpu": "GPUs of the hosts: list.",
    "key": "The key that seals secrets in the database: rotate, forget.",
    "backup": "Keep database and keys in one file, while Berth runs.",
    "restore": "Bring a backup back; the agent only looks until “berth hold release”.",
    "hold": "What differs after a restore: show, on, decide, release.",
    "simulate": "Simulated GPUs for demos and tests: init, show, load, fault, heal.",
}

PRIVATE = 0o027     # what a command makes in the state folder is nobody else's business

EPILOG = ("Exit codes: 0 done · 1 failed · 2 wrong arguments or values · 3 not found · 4 refused in this state · "
          "5 engine or agent not reached · 6 database of another version.")


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"webapp.cli.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpu-berth", prog_name="berth")
def berth() -> None:
    """GPU workspaces on your own servers. Settings are environment variables: see “berth settings”."""


def main() -> None:
    os.umask(PRIVATE)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of `berth <arguments>`."""
    try:
        return int(berth.main(arguments, prog_name="berth", standalone_mode=False) or 0)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except (click.Abort, KeyboardInterrupt):
        print(file=sys.stderr)
        return INTERRUPTED
    except AppError as error:
        print(f"berth: {sentence(error)}", file=sys.stderr)
        return exit_code(error)


if __name__ == "__main__":
    main()
