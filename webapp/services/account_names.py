"""Names that one person or team alone can have: both are groups inside a workspace, and are told apart by eye."""

from __future__ import annotations

from sqlalchemy import select, union_all
from sqlalchemy.orm import Session

from webapp.domain.names import skeleton
from webapp.errors import N_, InvalidInput
from webapp.store.tables import Member, Team


def refuse_taken(session: Session, name: str, field: str) -> None:
    """The house's turn for people is taken. A former member's name stays theirs. Raises InvalidInput."""
    names = session.scalars(union_all(select(Member.username), select(Team.name))).all()
    if name in names:
        raise InvalidInput.of(field, N_("“%(given)s” is taken. Choose another name."), given=name)
    for other in names:
        if skeleton(other) == skeleton(name):
            raise InvalidInput.of(field, N_("“%(given)s” looks like “%(other)s”, which is taken. Choose another name."),
                                  given=name, other=other)
