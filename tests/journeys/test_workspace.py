"""A workspace from launch to removal, by the ways in that people use: OpenSSH, paramiko, and Jupyter over its port."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from urllib.parse import urlencode

import paramiko
import pytest
from faults.house import Person
from faults.sshkeys import new_key
from faults.waiting import until
from faults.workspace import ADDRESS, Workspace, now

from journeys.jupyter import Jupyter
from journeys.team import TeamHouse
from journeys.wheels import wheel
from webapp.domain.sizes import MIB
from webapp.domain.workspace import Phase
from webapp.services import keys

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def one(team: TeamHouse) -> Workspace:
    """A workspace of alice with JupyterLab, which several tests look at and none stops."""
    workspace = team.launch(team.alice, team.full)
    workspace.until(Phase.RUNNING)
    return workspace


# -- SSH


def test_openssh_with_the_pages_known_hosts_line_meets_the_person(team: TeamHouse, one: Workspace) -> None:
    said = one.said("id; pwd; grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status").splitlines()

    uid = team.alice.uid
    assert said[0].startswith(f"uid={uid}(alice) gid={uid}(alice)") and f"{team.team.gid}(vision)" in said[0]
    assert said[1:] == ["/home/alice", "CapEff:\t" + "0" * 16, "CapBnd:\t" + "0" * 16, "NoNewPrivs:\t1"]


def test_openssh_refuses_another_host_key(team: TeamHouse, one: Workspace) -> None:
    stranger = new_key(team.house.folder / "stranger").public
    argv = one.ssh_argv()
    known = one.known_hosts()
    known.write_text(known.read_text().replace(one.secret().host_public_key, stranger))

    refused = subprocess.run([*argv, "true"], capture_output=True, text=True, timeout=60)

    assert refused.returncode == 255 and "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr


def test_paramiko_meets_the_person(one: Workspace) -> None:
    with paramiko.SSHClient() as client:
        client.load_host_keys(str(one.known_hosts()))
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        client.connect(ADDRESS, one.ports()["ssh"], "alice", key_filename=str(one.owner.key.path), allow_agent=False,
                       look_for_keys=False)
        _, stdout, _ = client.exec_command("id -un")
        assert stdout.read() == b"alice\n"


@pytest.mark.parametrize("attempt", ["sudo -n id -u", "su -c 'id -u'", "su root -c 'id -u' < /dev/null"])
def test_nobody_becomes_root(one: Workspace, attempt: str) -> None:
    done = one.ssh(attempt)
    assert done.returncode != 0 and done.stdout == ""


def test_a_key_counts_at_once_when_added_and_no_longer_when_removed(team: TeamHouse, one: Workspace) -> None:
    second = new_key(team.house.folder / "second")
    alice, by_second = team.alice, Workspace(team.house, _with_key(team.alice, second), one.id)
    with team.house.store.write() as session:
        row = keys.add_keys(session, alice.actor, member_id=alice.id, text=second.public, title="", now=now())[0]
    until(lambda: by_second.ssh("true").returncode == 0, what="the new key")

    with team.house.store.write() as session:
        keys.remove_key(session, alice.actor, row.id, now=now())
    until(lambda: by_second.ssh("true").returncode == 255, what="the end of the removed key")
    assert one.ssh("true").returncode == 0


def _with_key(person: Person, key: object) -> Person:
    return Person(person.id, person.username, person.uid, person.actor, key)  # type: ignore[arg-type]


# -- Jupyter


def test_jupyter_opens_to_its_token_alone(one: Workspace) -> None:
    token = one.secret().jupyter_token
    asked = {"": 403, token: 200, token[::-1]: 403}
    assert {given: one.http("GET", "/api/status", token=given)[0] for given in asked} == asked
    assert one.http("GET", "/api")[0] == 200


def test_form_with_token_and_password_signs_a_browser_in(one: Workspace) -> None:
    token = one.secret().jupyter_token
    form = urlencode({"token": token, "password": token}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://dashboard.example"}

    status, answer, _ = one.http("POST", "/login?next=/lab", body=form, headers=headers)

    assert (status, answer["Location"]) == (302, "/lab")
    cookie = answer["Set-Cookie"].split(";")[0]
    assert one.http("GET", "/api/status", headers={"Cookie": cookie})[0] == 200


def test_cell_runs_as_the_person_in_their_own_python(team: TeamHouse, one: Workspace) -> None:
    jupyter = Jupyter(one, one.secret().jupyter_token)
    said = jupyter.run_cell("import json, os, sys; print(json.dumps([6 * 7, os.getuid(), os.getcwd(), sys.prefix]))")
    assert json.loads(said) == [42, team.alice.uid, "/home/alice", "/opt/berth/py"]


def test_workspaces_of_one_home_share_neither_token_nor_cookie(team: TeamHouse, one: Workspace) -> None:
    other = team.launch(team.alice, team.full)
    other.until(Phase.RUNNING)
    token = one.secret().jupyter_token
    form = urlencode({"token": token, "password": token}).encode()
    _, answer, _ = one.http("POST", "/login", body=form, headers={"Content-Type": "application/x-www-form-urlencoded"})
    name, _, value = answer["Set-Cookie"].split(";")[0].partition("=")
    # The port is in the cookie's name; under the other's name it is what an attacker would send.
    renamed = f"{name.replace(str(one.ports()['jupyter']), str(other.ports()['jupyter']))}={value}"

    assert token != other.secret().jupyter_token
    assert other.http("GET", "/api/status", token=token)[0] == 403
    assert other.http("GET", "/api/status", headers={"Cookie": renamed})[0] == 403
    assert one.secret().host_public_key != other.secret().host_public_key
    other.remove().until(Phase.REMOVED)


# -- what lasts


def test_pip_installs_beside_the_home_and_it_lasts(team: TeamHouse) -> None:
    first, second = (team.launch(team.alice, team.slim) for _ in range(2))
    first.until(Phase.RUNNING)
    name, content = wheel("tinypackage")
    assert first.ssh(f"cat > {name}", stdin=content).returncode == 0

    first.said(f"pip install --no-index ~/{name}")
    before = first.said("python -c 'import tinypackage; print(tinypackage.__file__)'")
    first.stop().until(Phase.STOPPED)
    first.start().until(Phase.RUNNING)

    assert before.startswith("/opt/berth/py/lib/python")
    assert first.said("python -c 'import tinypackage; print(tinypackage.__file__)'") == before
    assert first.said("find ~ -name '*tinypackage*'") == f"/home/alice/{name}"
    second.until(Phase.RUNNING)
    assert second.said("ls ~/*.whl") == f"/home/alice/{name}"
    assert "ModuleNotFoundError" in second.ssh("python -c 'import tinypackage'").stderr
    _remove(first, second)


def test_stop_and_start_keep_container_ports_and_host_key(team: TeamHouse) -> None:
    workspace = team.launch(team.alice, team.slim)
    workspace.until(Phase.RUNNING)
    argv, before = workspace.ssh_argv(), (workspace.container().id, workspace.ports())
    workspace.stop().until(Phase.STOPPED)
    assert not workspace.greets()

    workspace.start().until(Phase.RUNNING)

    assert (workspace.container().id, workspace.ports()) == before
    assert subprocess.run([*argv, "true"], capture_output=True, timeout=60).returncode == 0
    _remove(workspace)


def test_home_outlives_its_workspaces(team: TeamHouse) -> None:
    first = team.launch(team.bob, team.slim, name="again")
    first.until(Phase.RUNNING)
    first.said("echo mine > ~/file; rm ~/.profile")
    volume = first.private_volume
    _remove(first)
    assert volume not in team.house.volumes()

    second = team.launch(team.bob, team.slim, name="again")
    second.until(Phase.RUNNING)

    assert second.said("cat ~/file; ls -A ~").split() == ["mine", ".bashrc", "file"]    # no skeleton a second time
    _remove(second)


# -- data of a team


def test_members_of_a_team_write_each_others_files(team: TeamHouse) -> None:
    by_alice, by_bob, reading = (
        team.launch(person, team.slim, mounts=((team.named, read_only),))
        for person, read_only in ((team.alice, False), (team.bob, False), (team.bob, True)))
    by_alice.until(Phase.RUNNING)
    by_alice.said("mkdir /data/named/run; echo alice > /data/named/run/log")
    by_bob.until(Phase.RUNNING)
    by_bob.said("echo bob >> /data/named/run/log; touch /data/named/run/by-bob")
    reading.until(Phase.RUNNING)

    gid = team.team.gid
    assert by_alice.said("stat -c '%g %a' /data/named /data/named/run /data/named/run/log").splitlines() == [
        f"{gid} 2775", f"{gid} 2775", f"{gid} 664"]
    assert reading.said("cat /data/named/run/log").split() == ["alice", "bob"]
    assert "Read-only file system" in reading.ssh("touch /data/named/run/log").stderr
    _remove(by_alice, by_bob, reading)


def test_folder_of_the_host_is_mounted_below_a_root(team: TeamHouse) -> None:
    workspace = team.launch(team.alice, team.slim, mounts=((team.folder, False),))
    workspace.until(Phase.RUNNING)

    workspace.said("echo here > /data/folder/file")

    path = Path(str(team.folder.host_folder), "file")
    status = path.stat()
    assert (path.read_text(), status.st_uid, status.st_gid) == ("here\n", team.alice.uid, team.team.gid)
    _remove(workspace)


@pytest.mark.parametrize("swapped", ["the folder itself", "its parent"])
def test_folder_swapped_for_a_symlink_is_not_mounted(team: TeamHouse, tmp_path: Path, swapped: str) -> None:
    folder = Path(str(team.folder.host_folder))
    outside = tmp_path / "outside"
    (outside / folder.name).mkdir(parents=True)
    for place in (outside, outside / folder.name):
        (place / "canary").write_text("not for members")
    workspace = team.launch(team.alice, team.slim, mounts=((team.folder, False),))
    workspace.until(Phase.RUNNING)
    workspace.stop().until(Phase.STOPPED)
    victim = folder if swapped == "the folder itself" else folder.parent
    aside = victim.rename(tmp_path / "aside")
    victim.symlink_to(outside)

    try:
        row = workspace.start().until_row(lambda row: row.reason is not None)

        assert row.reason is not None and row.reason["code"] == "volume_refused"
        assert [one.attrs["State"] for one in workspace.containers()] == ["exited"]
    finally:
        victim.unlink()
        aside.rename(victim)
    workspace.until(Phase.RUNNING)      # it is tried again: a folder may only be late
    assert workspace.ssh("ls /data/folder/canary").returncode != 0
    _remove(workspace)


# -- limits


def test_limits_are_as_asked_in_the_row_in_inspect_and_inside(team: TeamHouse) -> None:
    workspace = team.launch(team.alice, team.slim, cpus="0.75", memory="768MiB", shm="96MiB")
    row = workspace.until(Phase.RUNNING)

    memory, shm = 768 * MIB, 96 * MIB
    assert (row.cpu_millis, row.memory_bytes, row.shm_bytes, row.pids) == (750, memory, shm, 4096)
    host = workspace.container().attrs["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"], host["ShmSize"], host["PidsLimit"]) == (
        750_000_000, memory, memory, shm, 4096)
    assert json.loads(workspace.said(f"python -c '{_INSIDE}'")) == {
        "memory": memory, "pids": 4096, "cores": 0.75, "shm": shm}
    _remove(workspace)


# Control groups of both versions, as a program inside sees them.
_INSIDE = """
import json, os
def first(*paths):
    return next(open(path).read() for path in paths if os.path.exists(path))
g = "/sys/fs/cgroup"
if os.path.exists(g + "/cpu.max"):
    quota, period = first(g + "/cpu.max").split()
else:
    quota, period = first(g + "/cpu/cpu.cfs_quota_us"), first(g + "/cpu/cpu.cfs_period_us")
shm = os.statvfs("/dev/shm")
print(json.dumps({"memory": int(first(g + "/memory.max", g + "/memory/memory.limit_in_bytes")),
                  "pids": int(first(g + "/pids.max", g + "/pids/pids.max")),
                  "cores": int(quota) / int(period), "shm": shm.f_frsize * shm.f_blocks}))
"""


def _remove(*workspaces: Workspace) -> None:
    """All at once; memory of the machine that runs the tests is for the next ones."""
    for workspace in workspaces:
        workspace.remove()
    for workspace in workspaces:
        workspace.until(Phase.REMOVED)
