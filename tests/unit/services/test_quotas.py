"""Quotas: whose counts, what is used, and that nothing gets past one: not by a launch, a start or a change."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select

from webapp.domain.actor import Actor
from webapp.domain.quota import Amounts, Quota, QuotaExceeded
from webapp.domain.sizes import GIB
from webapp.domain.workspace import Phase
from webapp.errors import Forbidden, InvalidInput, NotFound, StaleForm
from webapp.services import quotas, teams, workspaces
from webapp.services.orders import LaunchRequest
from webapp.store.reads import quotas as reads
from webapp.store.tables import HOUSE, Event, Workspace


@pytest.fixture
def allow(do, carol):
    """allow(subject, cards=1) = set anew, whatever it was."""
    versions: dict[str, int] = {}

    def run(subject: str = HOUSE, **limits: int) -> None:
        row = do(quotas.set_quota, carol, subject, Quota(**limits), version=versions.get(subject, 0))
        versions[subject] = row.version
    return run


@pytest.fixture
def used(store, alice):
    def read() -> Amounts:
        with store.read() as session:
            return reads.used_by(session, alice.member_id)
    return read


def problems(caught) -> dict[str, str]:
    return {problem.field: str(problem) for problem in caught.value.problems}


def test_without_any_nothing_is_refused(launch, alice, used):
    for name in ("a", "b"):
        launch(alice, name, memory="32GiB", cpus="8")
    assert used() == Amounts(2, 0, 16_000, 64 * GIB)


def test_every_figure_that_is_too_much_is_told_with_its_limit(launch, alice, allow, rack):
    launch(alice, "a", gpus="2", cpus="2", memory="8GiB")
    allow(workspaces=1, cards=3, cpu_millis=3000, memory_bytes=12 * GIB)
    with pytest.raises(QuotaExceeded) as caught:
        launch(alice, "b", gpus="2", cpus="1.5", memory="8GiB")
    said = problems(caught)
    assert said.keys() == {"", "gpus", "cpus", "memory"} and caught.value.status == 409
    assert "3 GPUs are allowed at once, 2 are in use, and 2 more" in said["gpus"]
    assert "3 CPUs" in said["cpus"] and "1.5 more" in said["cpus"]
    assert "12 GiB" in said["memory"] and "1 workspaces are allowed" in said[""]


def test_exactly_the_quota_may_be_had(launch, alice, allow, rack, used):
    allow(workspaces=1, cards=2, cpu_millis=2000, memory_bytes=8 * GIB)
    launch(alice, gpus="2", cpus="2", memory="8GiB")
    assert used() == Amounts(1, 2, 2000, 8 * GIB)


def test_refused_launch_leaves_nothing(launch, alice, allow, rack, rows, held):
    allow(cards=1)
    with pytest.raises(QuotaExceeded):
        launch(alice, gpus="2")
    assert rows(Workspace) == 0


def test_stopped_one_counts_as_a_workspace_and_its_cards_are_free_again(
    launch, alice, allow, rack, stopped, used, do,
):
    stopped(gpus="2")
    assert used() == Amounts(1, 0, 0, 0)
    allow(workspaces=1, cards=1)
    with pytest.raises(QuotaExceeded) as caught:
        launch(alice, "b")
    assert problems(caught).keys() == {""}


def test_start_needs_what_it_takes(alice, allow, rack, stopped, do, launch):
    workspace = stopped(gpus="2")
    allow(cards=1)
    with pytest.raises(QuotaExceeded) as caught:
        do(workspaces.start, alice, workspace.id)
    assert problems(caught).keys() == {"gpus"}
    allow(cards=2)
    do(workspaces.start, alice, workspace.id)
    with pytest.raises(QuotaExceeded):
        launch(alice, "b", gpus="1")


def test_running_one_may_shrink_under_a_lower_quota_but_not_grow(alice, allow, runs, change):
    workspace = runs(cpus="4", memory="16GiB")
    allow(cpu_millis=1000, memory_bytes=GIB)
    change(alice, workspace, memory="8GiB")
    with pytest.raises(QuotaExceeded) as caught:
        change(alice, workspace, cpus="5")
    assert problems(caught).keys() == {"cpus"}


def test_stopped_one_is_changed_freely_and_refused_at_its_start(alice, allow, stopped, change, do):
    workspace = stopped(memory="1GiB")
    allow(memory_bytes=2 * GIB)
    change(alice, workspace, memory="4GiB")
    with pytest.raises(QuotaExceeded):
        do(workspaces.start, alice, workspace.id)


def test_own_one_counts_before_those_of_teams_and_these_before_the_houses(store, allow, alice, cast, do, carol):
    def of_alice() -> Quota:
        with store.read() as session:
            return reads.quota_of(session, alice.member_id)

    allow(cards=1)
    assert of_alice().cards == 1
    other = do(teams.create_team, carol, name="speech")
    do(teams.add_member, carol, team_id=other.id, member_id=alice.member_id)
    allow(cast.team_id, cards=2, workspaces=9)
    allow(other.id, cards=4, workspaces=3)
    assert of_alice() == Quota(workspaces=9, cards=4)
    allow(other.id, workspaces=3)
    assert of_alice() == Quota(workspaces=9)        # a team without a limit has the largest
    allow(alice.member_id, cards=0)
    assert of_alice() == Quota(cards=0)
    do(quotas.clear_quota, carol, alice.member_id, version=1)
    assert of_alice() == Quota(workspaces=9)


def test_other_persons_workspaces_do_not_count(launch, alice, bob, allow):
    allow(workspaces=1)
    launch(bob, "b")
    launch(alice, "a")


def test_failed_one_uses_nothing_that_runs(launch, alice, seen, used):
    workspace = launch(alice)
    seen(workspace, Phase.FAILED)
    assert used() == Amounts(1, 0, 0, 0)


def test_administrators_alone_set_them_and_each_change_is_in_the_history(do, alice, carol, store, cast):
    with pytest.raises(Forbidden):
        do(quotas.set_quota, alice, HOUSE, Quota(), version=0)
    with pytest.raises(NotFound):
        do(quotas.set_quota, carol, "nobody", Quota(), version=0)
    do(quotas.set_quota, carol, HOUSE, Quota(cards=2), version=0)
    do(quotas.set_quota, carol, HOUSE, Quota(cards=3), version=1)
    with store.read() as session:
        details = [event.details for event in session.query(Event).filter_by(action="quota.set").order_by(Event.id)]
    assert details[0]["before"] is None and details[1]["before"]["cards"] == 2 and details[1]["after"]["cards"] == 3


def test_second_of_two_administrators_is_told(do, carol, allow):
    allow(cards=1)
    for version in (0, 2):
        with pytest.raises(StaleForm):
            do(quotas.set_quota, carol, HOUSE, Quota(cards=9), version=version)
    with pytest.raises(NotFound):
        do(quotas.clear_quota, carol, HOUSE, version=1)


@pytest.mark.parametrize("typed", ["-1", "1.5", "many", "10001", "٣", "1e3", "9" * 400, "0x10"])
def test_counts_that_cannot_be_used_are_refused(typed):
    with pytest.raises(InvalidInput) as caught:
        quotas.read_count(typed, "cards")
    assert problems(caught).keys() == {"cards"}


def test_empty_count_is_no_limit_and_nought_is_nothing():
    assert quotas.read_count(" ", "cards") is None and quotas.read_count("0", "cards") == 0


def test_fifty_launches_at_once_do_not_get_past_it(store, alice, allow, house, now, cast):
    allow(workspaces=7)

    def one(number: int) -> str:
        request = LaunchRequest(name=f"w{number}", image_id=cast.image_id)
        try:
            with store.write() as session:
                workspaces.launch(session, Actor(alice.member_id, False), request, house=house, now=now)
        except QuotaExceeded:
            return "refused"
        return "launched"

    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(one, range(50)))
    assert sorted(set(said)) == ["launched", "refused"] and said.count("launched") == 7
    with store.read() as session:
        assert session.scalar(select(func.count()).select_from(Workspace)) == 7
