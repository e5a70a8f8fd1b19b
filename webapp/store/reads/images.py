"""Which images of the catalogue a person may launch from."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, or_, select

from webapp.domain.operation import OperationKind, OperationState
from webapp.store.tables import Image, Operation, TeamMember

_OPEN = (OperationState.WAITING, OperationState.RUNNING)


def visible_to(member_id: str) -> ColumnElement[bool]:
    """Everybody's, what that person saved, and what was saved for a team of theirs; nothing that was deleted."""
    teams = select(TeamMember.team_id).where(TeamMember.member_id == member_id)
    everybodys = and_(Image.owner_id.is_(None), Image.team_id.is_(None))
    return and_(Image.deleted_at.is_(None), or_(everybodys, Image.owner_id == member_id, Image.team_id.in_(teams)))


def is_being_deleted() -> ColumnElement[bool]:
    return Image.id.in_(select(Operation.image_id).where(
        Operation.kind == OperationKind.IMAGE_DELETE, Operation.state.in_(_OPEN), Operation.image_id.is_not(None)))
