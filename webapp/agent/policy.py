"""The last look before a container is made: the database may hold what web should never have written."""

from __future__ import annotations

from webapp.agent.context import HostContext
from webapp.agent.folders import refusal_in_time
from webapp.domain import cuda
from webapp.domain.container import ImageFacts
from webapp.domain.house import MIN_CPU_MILLIS, MIN_MEMORY_BYTES
from webapp.domain.quota import Quota, is_over
from webapp.domain.reasons import Reason
from webapp.store.reads import quotas
from webapp.store.reads.agent import MountWanted, WorkspaceInFull

LABEL_WORKSPACE_IMAGE = "berth.image.contract"   # images/README.md: a workspace image keeps that contract


def refuse_workspace(workspace: WorkspaceInFull, context: HostContext) -> Reason | None:
    """Why no container may be made for it as it is asked for; None = it may."""
    limits, house = workspace.limits, context.house
    if not MIN_CPU_MILLIS <= limits.cpu_millis <= house.max_cpu_millis:
        return Reason("limit_refused", {"limit": "CPU"})
    if not MIN_MEMORY_BYTES <= limits.memory_bytes <= house.max_memory_bytes or limits.shm_bytes > limits.memory_bytes:
        return Reason("limit_refused", {"limit": "memory"})
    return refuse_start(workspace, context)


def refuse_excess(workspace: WorkspaceInFull, context: HostContext) -> Reason | None:
    """Its owner uses more than their quota, which was lowered since, or never asked. What runs already goes on."""
    with context.store.read() as session:
        quota = quotas.quota_of(session, workspace.owner_id)
        over = is_over(quota, quotas.used_by(session, workspace.owner_id)) if quota != Quota() else None
    return Reason("over_quota", {"figure": over}) if over else None


def refuse_start(workspace: WorkspaceInFull, context: HostContext) -> Reason | None:
    """Asked before every start, not only at the first: accounts, membership, folders and their owners change."""
    if not workspace.owner_active:
        return Reason("owner_inactive")
    if workspace.image_withdrawn and workspace.wanted.revision == 0:
        return Reason("image_withdrawn", {"image": workspace.image_reference})
    if workspace.gpu_count and (too_old := cuda.refusal(workspace.cuda_version, workspace.driver_version)):
        return too_old
    for mount in workspace.mounts:
        if detail := _mount_refusal(mount, context):
            return Reason("volume_refused", {"volume": mount.volume_name, "detail": detail})
    return None


def refuse_architecture(reference: str, facts: ImageFacts, *, host: str, own: str | None) -> Reason | None:
    """Docker would make the container all the same; its programs cannot be carried out. None = not known."""
    if not own or not facts.architecture or own == facts.architecture:
        return None
    return Reason("other_architecture", {"image": reference, "architecture": facts.architecture, "own": own,
                                         "host": host})


def may_be_mended(reason: Reason) -> bool:
    """A folder may only be late: after a restart of the machine its file system is mounted when the network is up."""
    return reason.code == "volume_refused"


def refuse_image(reference: str, facts: ImageFacts) -> Reason | None:
    if facts.volumes:
        return Reason("image_has_volumes", {"image": reference, "volumes": ", ".join(facts.volumes)})
    if not facts.labels.get(LABEL_WORKSPACE_IMAGE):      # a commit leaves it empty
        return Reason("image_not_workspace", {"image": reference})
    return None


def _mount_refusal(mount: MountWanted, context: HostContext) -> str | None:
    if not mount.member_belongs:
        return f"its owner is no member of {mount.team.name} any more"
    return refusal_in_time(mount.host_folder, context.volume_roots) if mount.host_folder is not None else None
