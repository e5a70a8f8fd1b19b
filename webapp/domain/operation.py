"""Operations: work for the agent that is no phase of a workspace."""

from __future__ import annotations

from enum import StrEnum


class OperationKind(StrEnum):
    WORKSPACE_LOGS = "workspace_logs"       # arguments: tail_lines; result: text
    WORKSPACE_KEYS = "workspace_keys"       # write the owner's present keys into a running workspace
    SSH_CONNECTIONS = "ssh_connections"     # result: connections, domain.ssh_connections.Connection.as_json
    SSH_CUT = "ssh_cut"                     # arguments: connections (ids; null = all); result: those that are left
    WORKSPACE_SIZE = "workspace_size"       # result: size_bytes, layers, free_bytes: what a move would have to copy
    WORKSPACE_SAVE = "workspace_save"       # image_id: the row that becomes launchable
    IMAGE_PULL = "image_pull"               # image_id, host_id
    IMAGE_PREPARE = "image_prepare"         # image_id, host_id: build the workspace image on its base or Dockerfile
    IMAGE_DELETE = "image_delete"           # image_id, host_id: take it off the host


class OperationState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
