"""GPUs as pages show them: every card, how it is, and who holds it. A MIG slice is a card of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session

from webapp.domain.gpu import Condition, MigMode
from webapp.domain.gpu import Gpu as GpuValue
from webapp.store.tables import Gpu, GpuClaim, Member, Workspace


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose workspace has the card, for everybody to see: no name of the workspace."""

    member_id: str
    username: str
    workspace_id: str
    since: datetime


@dataclass(frozen=True, slots=True)
class CardRow:
    host_id: str
    key: str                            # within its host, also of a card without a UUID
    uuid: str | None
    parent_uuid: str | None             # of a MIG slice: its card
    index: int | None                   # text on screen; of a slice that of its card
    model: str                          # of a slice with its profile
    pci_bus_id: str | None
    memory_bytes: int | None            # None = not reported, never zero
    shares_host_memory: bool            # unified memory: there is no figure of its own
    is_divided: bool                    # a card in MIG mode: only its slices are to be had
    condition: Condition
    condition_at: datetime
    refusal: Mapping[str, Any] | None   # {"code", "facts"}: why nobody may have it
    simulated: bool
    holder: Holder | None

    @property
    def label(self) -> str:
        """As in the sentences about it: `GPU 3 (NVIDIA A100-SXM4-80GB)`."""
        return GpuValue(self.uuid, self.index, self.model).label

    @property
    def short(self) -> str:
        return "GPU" if self.index is None else f"GPU {self.index}"


@dataclass(frozen=True, slots=True)
class GpusOfWorkspace:
    """What a line in a list says. `count` 0: it has none and wants none."""

    count: int
    models: tuple[str, ...]     # each once, sorted; empty where its cards are known no longer
    held: int                   # fewer than count: given back, or not yet taken again
    lost: int                   # of those that it holds
    simulated: bool


def by_host(session: Session) -> Mapping[str, tuple[CardRow, ...]]:
    """Host id → its cards by index, slices after their card. One statement."""
    found: defaultdict[str, list[CardRow]] = defaultdict(list)
    for row in session.execute(_with_holders()):
        found[row[0].host_id].append(_card(*row))
    return {host_id: _in_order(cards) for host_id, cards in found.items()}


def of_workspace(session: Session, workspace: Workspace) -> tuple[CardRow, ...]:
    """Those that it holds, else those that it had last and that are still known. One statement."""
    theirs = or_(GpuClaim.workspace_id == workspace.id, Gpu.uuid.in_(workspace.gpu_uuids))
    rows = session.execute(_with_holders().where(Gpu.host_id == workspace.host_id, theirs))
    return _in_order(_card(*row) for row in rows)


class Lookup:
    """The same for many workspaces, in one statement for all of them."""

    def __init__(self, session: Session) -> None:
        self._by_holder: defaultdict[str, list[CardRow]] = defaultdict(list)
        self._by_uuid: dict[tuple[str, str], CardRow] = {}
        self._by_host = by_host(session)
        for here in self._by_host.values():
            for card in here:
                if card.uuid:
                    self._by_uuid[card.host_id, card.uuid] = card
                if card.holder:
                    self._by_holder[card.holder.workspace_id].append(card)

    def on(self, host_id: str) -> tuple[CardRow, ...]:
        """All cards of a host, by index."""
        return self._by_host.get(host_id, ())

    def of(self, workspace: Workspace) -> tuple[CardRow, ...]:
        last = (self._by_uuid.get((workspace.host_id, uuid)) for uuid in workspace.gpu_uuids)
        return tuple(self._by_holder[workspace.id]) or tuple(card for card in last if card)


def summary(workspace: Workspace, cards: Iterable[CardRow]) -> GpusOfWorkspace:
    """`cards`: those of `of_workspace` or `Lookup.of`."""
    cards = list(cards)
    held = [card for card in cards if card.holder and card.holder.workspace_id == workspace.id]
    return GpusOfWorkspace(
        count=workspace.gpu_count, models=tuple(sorted({card.model for card in held or cards})), held=len(held),
        lost=sum(card.condition is Condition.LOST for card in held), simulated=any(card.simulated for card in cards))


def _with_holders() -> Select[Gpu, datetime, str, str, str]:
    """Outer joins: the last four are None of a card that nobody holds."""
    return (
        select(Gpu, GpuClaim.claimed_at, Workspace.id, Member.id, Member.username)
        .outerjoin(GpuClaim, and_(GpuClaim.gpu_uuid == Gpu.uuid, GpuClaim.host_id == Gpu.host_id))
        .outerjoin(Workspace, Workspace.id == GpuClaim.workspace_id)
        .outerjoin(Member, Member.id == Workspace.owner_id)
    )


def _card(
    row: Gpu, since: datetime | None, workspace_id: str | None, member_id: str | None, username: str | None,
) -> CardRow:
    holder = Holder(member_id, username, workspace_id, since) if since and workspace_id and member_id and username \
        else None
    return CardRow(
        host_id=row.host_id, key=row.key, uuid=row.uuid, parent_uuid=row.parent_uuid, index=row.index, model=row.model,
        pci_bus_id=row.pci_bus_id, memory_bytes=row.memory_bytes, shares_host_memory=row.shares_host_memory,
        is_divided=row.mig_mode == MigMode.ENABLED, condition=Condition(row.condition), condition_at=row.condition_at,
        refusal=row.refusal, simulated=row.simulated, holder=holder)


def _in_order(cards: Iterable[CardRow]) -> tuple[CardRow, ...]:
    return tuple(sorted(cards, key=lambda card: (
        card.index is None, card.index or 0, card.parent_uuid is not None, card.model, card.key)))
