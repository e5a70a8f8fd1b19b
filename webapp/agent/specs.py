"""From a workspace's row to the container asked for, and to the files written into it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from webapp.domain.container import (
    LABEL_GPUS,
    LABEL_INSTANCE,
    LABEL_LIMITS,
    LABEL_ORIGIN,
    LABEL_PORTS,
    LABEL_PRIVATE_IMAGE,
    LABEL_REVISION,
    LABEL_SHAPE,
    LABEL_WORKSPACE,
    NO_GPUS,
    ContainerSpec,
    File,
    FolderMount,
    GpuAccess,
    PublishedPort,
    VolumeMount,
)
from webapp.domain.passwd import group_for, passwd_for
from webapp.domain.plan import container_name
from webapp.domain.workspace import CONTAINER_PORTS, Person
from webapp.store.reads.agent import MountWanted, SecretsInFull, WorkspaceInFull

SECRETS_FOLDER = "/etc/berth"
HOME_MODE = 0o700
TEAM_FOLDER_MODE = 0o2775       # set-gid: what a member writes belongs to the team
SKELETON = {                    # of a new home; after that it is the person's own
    ".bashrc": b"# ~/.bashrc: read by interactive shells.\nalias ll='ls -l'\n",
    ".profile": b"# ~/.profile: read by login shells.\n[ -n \"$BASH_VERSION\" ] && [ -f ~/.bashrc ] && . ~/.bashrc\n",
}


def private_volume(instance: str, workspace_id: str) -> str:
    """Volume for keys and token. Not in the container's own layer: a commit would carry them away."""
    return f"berth-{instance}-w-{workspace_id}"


def home_volume(instance: str, member_id: str) -> str:
    return f"berth-{instance}-home-{member_id}"


def team_volume(instance: str, volume_id: str) -> str:
    return f"berth-{instance}-v-{volume_id}"


def container_spec(
    workspace: WorkspaceInFull, *, revision: int, image: str, network: str, bind_address: str,
    gpus: GpuAccess = NO_GPUS,
) -> ContainerSpec:
    wanted, person = workspace.wanted, workspace.person
    return ContainerSpec(
        name=container_name(wanted.instance, wanted.workspace_id, revision),
        image=image,
        hostname=workspace.name,
        uid=person.uid,
        gid=person.uid,
        group_ids=tuple(team.gid for team in person.teams),
        environment=_environment(workspace),
        labels=_labels(workspace, revision),
        mounts=_mounts(workspace),
        ports=tuple(
            PublishedPort(CONTAINER_PORTS[service], bind_address, port)
            for service, port in sorted(wanted.ports.items())
        ),
        limits=workspace.limits,
        network=network,
        gpus=gpus,
    )


def workspace_files(
    workspace: WorkspaceInFull, secrets: SecretsInFull, keys: Sequence[str], *, users: tuple[str, str], new_home: bool
) -> list[File]:
    """One archive for everything, also inside the mounted volumes. `users`: the image's own passwd and group."""
    person = workspace.person
    passwd, group = users
    files = [
        File("/etc/passwd", 0o644, 0, 0, passwd_for(passwd, person).encode()),
        File("/etc/group", 0o644, 0, 0, group_for(group, person).encode()),
        File(SECRETS_FOLDER, 0o755, 0, 0),
        authorized_keys_file(keys),
        File(f"{SECRETS_FOLDER}/ssh_host_ed25519_key", 0o600, person.uid, person.uid,
             secrets.host_private_key.encode()),
        File(f"{SECRETS_FOLDER}/token", 0o400, person.uid, person.uid, secrets.jupyter_token.encode()),
        File(f"/home/{person.username}", HOME_MODE, person.uid, person.uid),
    ]
    if new_home:
        files += _skeleton(person)
    files += [
        File(mount.target, TEAM_FOLDER_MODE, 0, mount.team.gid)
        for mount in workspace.mounts if mount.host_folder is None and not mount.read_only
    ]
    return files


def authorized_keys_file(keys: Sequence[str]) -> File:
    """Owned by root: a program of the person cannot let somebody else in for good."""
    content = "".join(f"{line}\n" for line in keys).encode()
    return File(f"{SECRETS_FOLDER}/authorized_keys", 0o644, 0, 0, content)


def _environment(workspace: WorkspaceInFull) -> dict[str, str]:
    person = workspace.person
    return {
        "HOME": f"/home/{person.username}",
        "USER": person.username,
        "LOGNAME": person.username,
        "BERTH_WORKSPACE": workspace.name,
        "BERTH_JUPYTER": "1" if workspace.jupyter else "0",
    }


def _labels(workspace: WorkspaceInFull, revision: int) -> dict[str, str]:
    wanted = workspace.wanted
    return {
        LABEL_INSTANCE: wanted.instance,
        LABEL_WORKSPACE: wanted.workspace_id,
        LABEL_REVISION: str(revision),
        LABEL_PORTS: wanted.port_label,
        LABEL_GPUS: wanted.gpu_label,
        LABEL_SHAPE: wanted.shape,
        LABEL_LIMITS: wanted.limits,
        LABEL_ORIGIN: workspace.image_reference,
        LABEL_PRIVATE_IMAGE: "",
    }


def _mounts(workspace: WorkspaceInFull) -> tuple[VolumeMount | FolderMount, ...]:
    wanted = workspace.wanted
    labels = {LABEL_INSTANCE: wanted.instance}
    own = [
        VolumeMount(private_volume(wanted.instance, wanted.workspace_id), SECRETS_FOLDER, labels=labels),
        VolumeMount(home_volume(wanted.instance, workspace.owner_id), f"/home/{workspace.person.username}",
                    labels=labels),
    ]
    return (*own, *(_team_mount(wanted.instance, mount) for mount in workspace.mounts))


def _team_mount(instance: str, mount: MountWanted) -> VolumeMount | FolderMount:
    if mount.host_folder is not None:
        return FolderMount(mount.host_folder, mount.target, mount.read_only)
    return VolumeMount(team_volume(instance, mount.volume_id), mount.target, mount.read_only,
                       labels={LABEL_INSTANCE: instance})


def _skeleton(person: Person) -> list[File]:
    home = f"/home/{person.username}"
    return [File(f"{home}/{name}", 0o644, person.uid, person.uid, content) for name, content in SKELETON.items()]
