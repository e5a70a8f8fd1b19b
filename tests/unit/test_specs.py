"""What is asked of the engine for a workspace, and what is written into it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from webapp.agent import specs
from webapp.domain.container import ContainerSpec, File, FolderMount, PublishedPort, VolumeMount
from webapp.domain.plan import Wanted
from webapp.domain.workspace import Desired, Health, Limits, Person, Phase, Service, Team
from webapp.engines.docker.body import container_body
from webapp.store.reads.agent import MountWanted, SecretsInFull, WorkspaceInFull

VISION = Team("vision", 20000)
SECRETS = SecretsInFull("t0ken-canary", "-----BEGIN canary-----\nkey\n", "ssh-ed25519 AAAA")
KEYS = ("ssh-ed25519 AAAA one", "ssh-rsa BBBB two")
USERS = ("root:x:0:0:root:/root:/bin/bash\n", "root:x:0:\n")


def team_mount(**changes: Any) -> MountWanted:
    values = {"volume_id": "v1", "volume_name": "imagenet", "team": VISION, "host_folder": None,
              "target": "/data/imagenet", "read_only": False, "member_belongs": True}
    return MountWanted(**values | changes)


@pytest.fixture
def workspace() -> WorkspaceInFull:
    wanted = Wanted(
        instance="test1", workspace_id="abc", desired=Desired.RUNNING, generation=1, attempted_generation=1,
        observed_generation=0, phase=Phase.PULLING, revision=0, container_id=None, private_image=None,
        ports={Service.SSH: 20000, Service.JUPYTER: 20001}, next_try_at=None, shape="shm=1 mounts=v1:ro",
        limits="cpu=2000 memory=8")
    return WorkspaceInFull(
        wanted=wanted, name="run-1", host_id="h", host_name="gpu1", owner_id="m1",
        person=Person("alice", 10001, (VISION,)), owner_active=True, image_reference="berth/workspace:1",
        image_withdrawn=False, limits=Limits(2000, 2**33, 2**31), jupyter=True, mounts=(), failures=0, progress={},
        started_at=None, health=Health.UNKNOWN, note=None)


def spec_of(workspace: WorkspaceInFull) -> ContainerSpec:
    return specs.container_spec(
        workspace, revision=3, image="berth/workspace:1", network="berth-test1", bind_address="127.0.0.1")


def files_of(workspace: WorkspaceInFull, *, new_home: bool = False, keys: tuple[str, ...] = KEYS) -> dict[str, File]:
    listed = specs.workspace_files(workspace, SECRETS, keys, users=USERS, new_home=new_home)
    assert len({file.path for file in listed}) == len(listed), "a path is written twice"
    return {file.path: file for file in listed}


class TestSpec:
    def test_runs_as_the_person_with_their_teams(self, workspace: WorkspaceInFull) -> None:
        spec = spec_of(workspace)
        assert (spec.uid, spec.gid, spec.group_ids) == (10001, 10001, (20000,))

    def test_labels_tell_whose_it_is_and_on_which_ports(self, workspace: WorkspaceInFull) -> None:
        assert spec_of(workspace).labels == {
            "berth.instance": "test1", "berth.workspace": "abc", "berth.revision": "3",
            "berth.ports": "jupyter=20001,ssh=20000", "berth.gpus": "",
            "berth.shape": "shm=1 mounts=v1:ro", "berth.limits": "cpu=2000 memory=8",
            "berth.origin": "berth/workspace:1", "berth.image.private": ""}
        assert spec_of(workspace).name == "berth-test1-w-abc-r3"

    def test_publishes_each_service_on_one_address(self, workspace: WorkspaceInFull) -> None:
        assert set(spec_of(workspace).ports) == {
            PublishedPort(2222, "127.0.0.1", 20000), PublishedPort(8888, "127.0.0.1", 20001)}

    def test_has_a_private_volume_and_the_home_of_its_owner(self, workspace: WorkspaceInFull) -> None:
        volumes = {mount.target: mount.volume for mount in spec_of(workspace).mounts if isinstance(mount, VolumeMount)}
        assert volumes == {"/etc/berth": "berth-test1-w-abc", "/home/alice": "berth-test1-home-m1"}

    def test_team_data_is_a_volume_or_a_folder(self, workspace: WorkspaceInFull) -> None:
        mounts = (team_mount(), team_mount(volume_id="v2", target="/data/raw", host_folder="/srv/raw", read_only=True))
        spec = spec_of(replace(workspace, mounts=mounts))
        assert spec.mounts[2:] == (
            VolumeMount("berth-test1-v-v1", "/data/imagenet", labels={"berth.instance": "test1"}),
            FolderMount("/srv/raw", "/data/raw", read_only=True))

    def test_volumes_are_labelled_as_ours(self, workspace: WorkspaceInFull) -> None:
        mounts = [mount for mount in spec_of(workspace).mounts if isinstance(mount, VolumeMount)]
        assert all(mount.labels == {"berth.instance": "test1"} for mount in mounts)

    def test_says_whether_jupyter_is_wanted(self, workspace: WorkspaceInFull) -> None:
        assert spec_of(workspace).environment["BERTH_JUPYTER"] == "1"
        assert spec_of(replace(workspace, jupyter=False)).environment["BERTH_JUPYTER"] == "0"

    def test_no_secret_is_in_it_nor_in_what_the_engine_gets(self, workspace: WorkspaceInFull) -> None:
        """Whoever may inspect a container reads its body, its labels and its environment."""
        spec = spec_of(workspace)
        assert "canary" not in f"{spec!r} {container_body(spec)}"


class TestFiles:
    @pytest.mark.parametrize(("path", "owner", "mode"), [
        ("/etc/passwd", 0, 0o644),
        ("/etc/group", 0, 0o644),
        ("/etc/berth", 0, 0o755),
        ("/etc/berth/authorized_keys", 0, 0o644),           # a program of the person cannot let anybody in for good
        ("/etc/berth/ssh_host_ed25519_key", 10001, 0o600),  # sshd runs as the person and refuses a key others may read
        ("/etc/berth/token", 10001, 0o400),
        ("/home/alice", 10001, 0o700),
    ])
    def test_owner_and_mode(self, workspace: WorkspaceInFull, path: str, owner: int, mode: int) -> None:
        file = files_of(workspace)[path]
        assert (file.uid, file.gid, file.mode) == (owner, owner, mode)

    def test_token_has_no_newline(self, workspace: WorkspaceInFull) -> None:
        """It would be part of the token."""
        assert files_of(workspace)["/etc/berth/token"].content == b"t0ken-canary"

    def test_host_key_ends_with_a_newline(self, workspace: WorkspaceInFull) -> None:
        """sshd refuses one that does not ("invalid format")."""
        assert (files_of(workspace)["/etc/berth/ssh_host_ed25519_key"].content or b"").endswith(b"\n")

    def test_each_key_is_a_line(self, workspace: WorkspaceInFull) -> None:
        assert files_of(workspace)["/etc/berth/authorized_keys"].content == (
            b"ssh-ed25519 AAAA one\nssh-rsa BBBB two\n")

    def test_without_keys_nobody_gets_in(self, workspace: WorkspaceInFull) -> None:
        assert files_of(workspace, keys=())["/etc/berth/authorized_keys"].content == b""

    def test_person_is_in_passwd_and_the_team_in_group(self, workspace: WorkspaceInFull) -> None:
        files = files_of(workspace)
        assert b"alice:x:10001:10001:" in (files["/etc/passwd"].content or b"")
        assert b"vision:x:20000:alice\n" in (files["/etc/group"].content or b"")

    def test_skeleton_is_for_a_new_home_only(self, workspace: WorkspaceInFull) -> None:
        new = files_of(workspace, new_home=True)
        assert (new["/home/alice/.bashrc"].uid, new["/home/alice/.bashrc"].mode) == (10001, 0o644)
        assert new["/home/alice/.profile"].content
        assert not [path for path in files_of(workspace) if path.startswith("/home/alice/")]

    def test_folder_comes_before_what_is_in_it(self, workspace: WorkspaceInFull) -> None:
        paths = list(files_of(workspace, new_home=True))
        assert paths.index("/etc/berth") < paths.index("/etc/berth/token")
        assert paths.index("/home/alice") < paths.index("/home/alice/.bashrc")

    def test_new_team_volume_belongs_to_the_team(self, workspace: WorkspaceInFull) -> None:
        folder = files_of(replace(workspace, mounts=(team_mount(),)))["/data/imagenet"]
        assert (folder.uid, folder.gid, folder.mode, folder.content) == (0, 20000, 0o2775, None)

    @pytest.mark.parametrize("mount", [team_mount(read_only=True), team_mount(host_folder="/srv/raw")])
    def test_owners_of_folders_and_of_what_is_read_only_are_left_alone(
        self, workspace: WorkspaceInFull, mount: MountWanted,
    ) -> None:
        assert "/data/imagenet" not in files_of(replace(workspace, mounts=(mount,)))

    def test_no_secret_shows_in_a_log_line(self, workspace: WorkspaceInFull) -> None:
        assert "canary" not in f"{files_of(workspace)!r} {SECRETS!r} {workspace!r}"
