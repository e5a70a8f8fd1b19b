"""All tables, a file per aggregate."""

from webapp.store.tables.base import Base
from webapp.store.tables.catalogue import HostImage, Image, Volume, WorkspaceMount
from webapp.store.tables.gpus import Gpu, GpuClaim
from webapp.store.tables.hosts import Host, HostHome
from webapp.store.tables.people import Invite, Member, Role, SshKey, Team, TeamMember
from webapp.store.tables.quotas import HOUSE, QuotaRow
from webapp.store.tables.sessions import BrowserSession
from webapp.store.tables.work import AgentState, Event, HoldFinding, Intent, Operation
from webapp.store.tables.workspaces import PortClaim, PortHistory, Workspace, WorkspaceSecret

__all__ = [
    "HOUSE", "AgentState", "Base", "BrowserSession", "Event", "Gpu", "GpuClaim", "HoldFinding", "Host", "HostHome",
    "HostImage", "Image", "Intent", "Invite", "Member", "Operation", "PortClaim", "PortHistory", "QuotaRow", "Role",
    "SshKey", "Team", "TeamMember", "Volume", "Workspace", "WorkspaceMount", "WorkspaceSecret",
]
