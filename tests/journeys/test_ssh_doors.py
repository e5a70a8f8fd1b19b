"""What sshd of a workspace refuses, and what of it stays: threat S17."""

from __future__ import annotations

import contextlib
import subprocess

import pytest
from faults.ports import foreign_listener
from faults.waiting import until
from faults.workspace import ADDRESS, Workspace

from journeys.team import TeamHouse
from webapp.domain.workspace import Phase

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def one(team: TeamHouse) -> Workspace:
    workspace = team.launch(team.alice, team.slim)
    workspace.until(Phase.RUNNING)
    return workspace


def asked(workspace: Workspace, *options: str, name: str = "alice") -> subprocess.CompletedProcess[str]:
    argv = workspace.ssh_argv(*options)[:-1]
    return subprocess.run([*argv, f"{name}@{ADDRESS}", "env"], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


def test_only_a_key_opens(one: Workspace) -> None:
    """The answer names what there is to try: nothing but keys."""
    for ways in ("password", "keyboard-interactive", "hostbased", "none"):
        refused = asked(one, "-o", f"PreferredAuthentications={ways}", "-o", "PubkeyAuthentication=no")
        assert refused.returncode == 255 and "Permission denied (publickey)" in refused.stderr
    assert asked(one).returncode == 0


@pytest.mark.parametrize("name", ["root", "bob", "nobody"])
def test_nobody_else_gets_in_with_the_same_key(one: Workspace, name: str) -> None:
    refused = asked(one, name=name)
    assert refused.returncode == 255 and refused.stdout == ""


def test_neither_agent_nor_screen_of_the_caller_is_reached(one: Workspace) -> None:
    with_both = asked(one, "-A", "-X")
    assert with_both.returncode == 0
    assert "SSH_AUTH_SOCK" not in with_both.stdout and "DISPLAY" not in with_both.stdout


def test_few_tries_and_no_other_settings_than_these(one: Workspace) -> None:
    """As sshd itself has read its files, in the order in which they count."""
    running = next(line for line in one.run("ps", "axww", "-o", "args").splitlines() if "sshd" in line and "-D" in line)
    file = running.split("-f")[1].split()[0] if "-f" in running else "/etc/ssh/sshd_config"
    said = one.run("/usr/sbin/sshd", "-T", "-f", file).lower().splitlines()
    for line in ("maxauthtries 6", "permitrootlogin no", "passwordauthentication no",
                 "kbdinteractiveauthentication no", "allowagentforwarding no", "x11forwarding no", "allowusers alice",
                 "permituserenvironment no", "gatewayports no", "permittunnel no"):
        assert line in said


def test_host_key_is_its_own_and_stays_over_stop_start_and_move(team: TeamHouse, one: Workspace) -> None:
    other = team.launch(team.alice, team.slim)
    other.until(Phase.RUNNING)
    before = _shown_host_key(other)
    assert before != _shown_host_key(one)
    other.stop().until(Phase.STOPPED)
    other.start().until(Phase.RUNNING)
    assert _shown_host_key(other) == before
    other.stop().until(Phase.STOPPED)
    with contextlib.closing(foreign_listener(other.ports()["ssh"])):
        other.start().until(Phase.RUNNING)
    until(lambda: len(other.containers()) == 1, what="the end of the old container")
    assert _shown_host_key(other) == before
    other.remove().until(Phase.REMOVED)


def _shown_host_key(workspace: Workspace) -> str:
    """As sshd shows it to a stranger, on the port of now."""
    scan = ["ssh-keyscan", "-t", "ed25519", "-p", str(workspace.ports()["ssh"]), ADDRESS]
    said = subprocess.run([*workspace.house.ground.prefix, *scan], capture_output=True, text=True, timeout=60,
                          check=True)
    return said.stdout.split()[-1]
