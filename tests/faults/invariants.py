"""What must hold whatever goes wrong. Asked of the engine and of the rows, never of the agent."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from sqlalchemy import select

from faults.house import House
from faults.toolkit import Toolkit
from faults.waiting import until
from webapp.domain.workspace import RESTING, Desired, Phase
from webapp.store.tables import GpuClaim, PortClaim, Workspace, WorkspaceSecret

UP = frozenset({"running", "paused", "restarting"})


def check_always(house: House) -> None:
    """At every moment, also in the middle of something, and while no agent runs.

    At most one container of a workspace is up, none without a row that is not gone, and what it publishes and the cards
    that the toolkit gave it are claimed. No card is in two containers, whosoever.
    """
    up = [one for one in own_containers(house) if one.attrs["State"] in UP]
    rows, claims = _rows(house), _claims(house)
    per_workspace = Counter(_workspace_of(one) for one in up)
    assert [id_ for id_, count in per_workspace.items() if count > 1] == []
    for container in up:
        row = rows.get(_workspace_of(container))
        assert row is not None and row.phase != Phase.REMOVED, f"{container.attrs['Names']} runs without a row"
        published = {port["PublicPort"] for port in container.attrs["Ports"] if port.get("PublicPort")}
        assert published <= claims[row.id], f"{row.name} publishes {published}, claimed are {claims[row.id]}"
    _check_cards(house, up)


def check_at_rest(house: House) -> None:
    """When every wish is fulfilled: what is on the engine is what the rows say, and nothing else."""
    check_always(house)
    rows = {id_: row for id_, row in _rows(house).items() if row.phase != Phase.REMOVED}
    containers: dict[str, list[Any]] = defaultdict(list)
    for container in own_containers(house):
        containers[_workspace_of(container)].append(container)
    assert set(containers) <= set(rows), "a container of no workspace"
    held = cards_held(house)
    assert set(held) <= set(rows), "a card of no workspace"
    for row in rows.values():
        _check_workspace(row, containers[row.id])
        if house.toolkit and row.phase not in RESTING:
            assert _given(house.toolkit, containers[row.id][0].id) == held[row.id], f"{row.name} got others"
        wanted = 0 if row.phase in RESTING else row.gpu_count
        assert len(held[row.id]) == wanted, f"{row.name} is {row.phase} and holds {held[row.id]}"
    _check_what_is_kept(house, rows)


def until_at_rest(house: House, *, seconds: float = 60.0) -> None:
    """Waits for what follows a phase: the old container of a move is removed once the new one is on record."""
    trouble: list[AssertionError] = []

    def at_rest() -> bool:
        try:
            check_at_rest(house)
        except AssertionError as error:
            trouble.append(error)
            return False
        return True

    until(at_rest, seconds=seconds, what=lambda: f"{trouble[-1]}\n{house.how_it_is()}")


def _check_workspace(row: Workspace, containers: list[Any]) -> None:
    assert row.observed_generation == row.generation, f"{row.name}: a wish is open"
    if row.phase in RESTING:
        assert [one.attrs["State"] for one in containers if one.attrs["State"] in UP] == [], f"{row.name} is up"
        assert len(containers) <= 1
    else:
        assert (row.desired, row.phase) == (Desired.RUNNING, Phase.RUNNING)
        assert [(one.id, one.attrs["State"]) for one in containers] == [(row.container_id, "running")]
        assert containers[0].attrs["Labels"]["berth.revision"] == str(row.revision)


def _check_what_is_kept(house: House, rows: dict[str, Workspace]) -> None:
    """Private volumes, private images, claims and secrets: of workspaces that are not gone, and of no other."""
    private = {volume for volume in house.volumes() if volume.startswith(f"berth-{house.instance}-w-")}
    assert private <= {f"berth-{house.instance}-w-{id_}" for id_ in rows}
    assert set(house.private_images()) <= {row.private_image for row in rows.values()}
    claims = _claims(house)
    assert set(claims) == set(rows)
    assert {id_: len(ports) for id_, ports in claims.items()} == {
        id_: 2 if row.jupyter else 1 for id_, row in rows.items()}
    with house.store.read() as session:
        assert set(session.scalars(select(WorkspaceSecret.workspace_id))) == set(rows)


def _check_cards(house: House, up: list[Any]) -> None:
    """The toolkit's log is the truth about what a container got when it was started last. While a workspace moves it
    holds more.
    """
    if house.toolkit is None:
        return
    held = cards_held(house)
    for container in up:
        given = _given(house.toolkit, container.id)
        assert given <= held[_workspace_of(container)], f"{container.attrs['Names']} got {given}, held are {held}"
    everybodys = house.docker.containers.list(sparse=True)
    shared = Counter(card for one in everybodys for card in _given(house.toolkit, one.id))
    assert [card for card, count in shared.items() if count > 1] == [], "a card is in two containers"


def _given(toolkit: Toolkit, container_id: str) -> set[str]:
    last = toolkit.given(container_id)[-1:]
    return {card for visible in last for card in visible.split(",")}


def cards_held(house: House) -> dict[str, set[str]]:
    """By workspace. That nobody else holds one of them, the database sees to, and this once more."""
    held: dict[str, set[str]] = defaultdict(set)
    with house.store.read() as session:
        claims = list(session.scalars(select(GpuClaim)))
    for claim in claims:
        held[claim.workspace_id].add(claim.gpu_uuid)
    assert len({claim.gpu_uuid for claim in claims}) == len(claims), "a card has two holders"
    return held


def own_containers(house: House) -> list[Any]:
    """By label, and by name or recorded id: copied labels alone make no container Berth's."""
    recorded = {row.container_id for row in _rows(house).values()}
    return [one for one in house.containers()
            if one.attrs["Names"][0].startswith(f"/berth-{house.instance}-w-") or one.id in recorded]


def _workspace_of(container: Any) -> str:
    return str(container.attrs["Labels"]["berth.workspace"])


def _rows(house: House) -> dict[str, Workspace]:
    with house.store.read() as session:
        return {row.id: row for row in session.scalars(select(Workspace))}


def _claims(house: House) -> dict[str, set[int]]:
    claims: dict[str, set[int]] = defaultdict(set)
    with house.store.read() as session:
        for claim in session.scalars(select(PortClaim)):
            claims[claim.workspace_id].add(claim.port)
    return claims
