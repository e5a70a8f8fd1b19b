import pytest
from sqlalchemy import select

from webapp.domain.actor import Actor
from webapp.domain.operation import OperationKind
from webapp.domain.sshkeys import MOST_KEYS
from webapp.domain.workspace import Phase
from webapp.errors import InvalidInput, NotFound
from webapp.services import keys, workspaces
from webapp.store.tables import Operation, SshKey


@pytest.fixture
def add(do):
    """add(alice, text) adds alice's own keys."""
    return lambda actor, text, title="": do(keys.add_keys, actor, member_id=actor.member_id, text=text, title=title)


@pytest.fixture
def key_updates(store):
    """Workspaces that wait for their owner's keys."""
    def waiting() -> list[str]:
        with store.read() as session:
            return list(session.scalars(
                select(Operation.workspace_id).where(Operation.kind == OperationKind.WORKSPACE_KEYS)))
    return waiting


def messages(caught) -> str:
    return str(caught.value)


def test_key_is_kept_as_one_canonical_line(add, alice, public_key):
    line = public_key()
    kept, = add(alice, f"  {line}   alice's   laptop\r\n")
    assert kept.line == f"{line} alice's laptop"
    assert kept.title == "alice's laptop" and kept.type == "ssh-ed25519"


def test_several_keys_are_added_at_once(add, alice, public_key):
    assert len(add(alice, f"{public_key()}\n\n# old\n{public_key()}")) == 2


def test_one_bad_line_adds_nothing(add, alice, public_key, store):
    with pytest.raises(InvalidInput) as caught:
        add(alice, f"{public_key()}\nssh-dss AAAA")
    assert {problem.field for problem in caught.value.problems} == {"text"}
    with store.read() as session:
        assert session.scalars(select(SshKey)).all() == []


def test_no_key_at_all_is_refused(add, alice):
    with pytest.raises(InvalidInput) as caught:
        add(alice, "\n# nothing here\n")
    assert "Paste at least one key" in messages(caught)


def test_key_twice_is_refused_with_the_title_it_has(add, alice, public_key):
    line = public_key()
    add(alice, line, "laptop")
    with pytest.raises(InvalidInput) as caught:
        add(alice, line)
    assert "“laptop”" in messages(caught)


def test_two_people_may_share_a_key(add, alice, bob, public_key):
    line = public_key()
    assert add(alice, line) and add(bob, line)


def test_number_of_keys_is_bounded(add, alice, public_key):
    add(alice, "\n".join(public_key() for _ in range(MOST_KEYS)))
    with pytest.raises(InvalidInput):
        add(alice, public_key())


def test_nobody_adds_a_key_for_somebody_else(do, carol, alice, public_key):
    with pytest.raises(NotFound):
        do(keys.add_keys, carol, member_id=alice.member_id, text=public_key(), title="")


def test_command_line_adds_a_key_for_a_member(do, alice, public_key):
    assert do(keys.add_keys, Actor.house(), member_id=alice.member_id, text=public_key(), title="")


def test_new_key_goes_into_each_running_workspace(add, do, alice, bob, launch, seen, key_updates, public_key):
    running, starting, stopped = (launch(alice, name) for name in ("a", "b", "c"))
    strangers = launch(bob)
    seen(running, Phase.RUNNING)
    seen(starting, Phase.STARTING)
    do(workspaces.stop, alice, stopped.id)
    seen(strangers, Phase.RUNNING)
    add(alice, public_key())
    assert sorted(key_updates()) == sorted([running.id, starting.id])


def test_two_changes_in_a_row_make_one_update(add, alice, launch, key_updates, public_key):
    launch(alice)
    add(alice, public_key())
    add(alice, public_key())
    assert len(key_updates()) == 1


def test_removed_key_leaves_running_workspaces(add, do, alice, launch, key_updates, public_key, store):
    kept, = add(alice, public_key())
    workspace = launch(alice)
    do(keys.remove_key, alice, kept.id)
    assert key_updates() == [workspace.id]
    with store.read() as session:
        assert session.get(SshKey, kept.id) is None


def test_stranger_cannot_remove_a_key(add, do, alice, bob, public_key):
    kept, = add(alice, public_key())
    with pytest.raises(NotFound):
        do(keys.remove_key, bob, kept.id)


def test_admin_removes_a_leaked_key(add, do, alice, carol, public_key, store):
    kept, = add(alice, public_key())
    do(keys.remove_key, carol, kept.id)
    with store.read() as session:
        assert session.get(SshKey, kept.id) is None
