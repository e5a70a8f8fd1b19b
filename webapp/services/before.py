"""What a workspace was before a change that is not carried out yet, so that it can go back (observations.undo_change).

Kept from the first change on until a container made by the last one runs; once somebody stops it, there is no way back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from webapp.domain.workspace import Desired
from webapp.store.tables import Workspace, WorkspaceMount

_COLUMNS = ("cpu_millis", "memory_bytes", "shm_bytes", "gpu_count", "gpu_model", "gpu_uuids")


def keep(session: Session, workspace: Workspace, *, ran: bool) -> None:
    """The first one stays. `ran`: a container of that kind is at work; else there is nothing to go back to, and it only
    says that what is other than before was wished.
    """
    if workspace.before_change is not None:
        return
    spec: dict[str, Any] = {column: getattr(workspace, column) for column in _COLUMNS}
    mounts = sorted(mounts_of(session, workspace.id).items())
    workspace.before_change = {"ran": ran, "mounts": [list(mount) for mount in mounts], **spec}


def no_way_back(workspace: Workspace) -> None:
    """It is not to go on. That what is other than before was wished is still true."""
    if workspace.before_change is not None:
        workspace.before_change = {**workspace.before_change, "ran": False}


def restore(session: Session, workspace: Workspace) -> None:
    """The spec is what it was; claims are another matter."""
    before = dict(workspace.before_change or {})
    for column in _COLUMNS:
        setattr(workspace, column, before[column])
    set_mounts(session, workspace.id, [(volume_id, read_only) for volume_id, read_only in before["mounts"]])
    workspace.before_change = None


def mounts_of(session: Session, workspace_id: str) -> dict[str, bool]:
    """Volume id → whether it is mounted read-only."""
    rows = session.execute(select(WorkspaceMount.volume_id, WorkspaceMount.read_only)
                           .where(WorkspaceMount.workspace_id == workspace_id))
    return dict(rows.all())


def set_mounts(session: Session, workspace_id: str, mounts: Iterable[tuple[str, bool]]) -> None:
    """These and no others. Raises IntegrityError: a volume was removed a moment ago (PostgreSQL only)."""
    session.execute(delete(WorkspaceMount).where(WorkspaceMount.workspace_id == workspace_id))
    session.add_all(WorkspaceMount(workspace_id=workspace_id, volume_id=volume_id, read_only=read_only)
                    for volume_id, read_only in mounts)
    session.flush()


def mounting(session: Session, volume_ids: Collection[str]) -> list[Workspace]:
    """Workspaces that are to run and whose container may still have one of these volumes, as before; by name."""
    rows = session.scalars(
        select(Workspace).where(Workspace.before_change.is_not(None), Workspace.desired == Desired.RUNNING)
        .order_by(Workspace.name))
    return [row for row in rows if {mount[0] for mount in (row.before_change or {})["mounts"]} & set(volume_ids)]
