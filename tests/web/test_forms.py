"""Forms: what was typed stays, and what is wrong stands beside its field."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import func, select, update

from web.conftest import KEY, OTHER_KEY, Browser, Cast
from webapp.store.session import Store
from webapp.store.tables import Image, Invite, SshKey, Team, TeamMember, Volume, Workspace, WorkspaceMount


def wrong(text: str, name: str) -> str:
    """What stands beside a field."""
    found = re.search(rf'id="{name}-wrong">(.*?)</div>', text, re.S)
    return found[1] if found else ""


def count(store: Store, table: Any) -> int:
    with store.read() as db:
        return db.scalar(select(func.count()).select_from(table)) or 0


def launch_form(cast: Cast, **changes: str) -> dict[str, str]:
    return {"name": "run-1", "image_id": cast.image, "cpus": "2", "memory": "8GiB", "shm": "", "gpu_way": "none",
            **changes}


def test_launch_form_is_filled_in(alice: Browser, cast: Cast) -> None:
    text = alice.get("/launch").text
    assert 'value="workspace"' in text and 'value="2"' in text and 'value="8GiB"' in text
    assert re.search(rf'value="{cast.image}"[^>]* checked', text)
    assert "berth image prepare" not in text and "Ask an administrator to prepare it" in text
    assert text.count(" disabled") == 3     # the seeded images that nobody has prepared


def test_launch_without_any_prepared_image_says_so(alice: Browser, store: Store) -> None:
    with store.write() as db:
        db.execute(update(Image).values(reference=None, base=Image.id))
    assert "nothing can be launched" in wrong(alice.get("/launch").text, "image_id")


def test_launch_makes_a_workspace_with_a_quarter_of_memory_shared(alice: Browser, cast: Cast, store: Store) -> None:
    answer = alice.post("/launch", launch_form(cast, **{f"mount-{cast.volume}": "ro"}))
    assert answer.status_code == 303
    with store.read() as db:
        made = db.scalars(select(Workspace)).one()
        assert (made.cpu_millis, made.memory_bytes, made.shm_bytes) == (2000, 8 * 2**30, 2 * 2**30)
        assert db.scalars(select(WorkspaceMount)).one().read_only
    assert answer.headers["Location"] == f"/workspaces/{made.id}"


def test_launch_says_everything_that_is_wrong_at_once(alice: Browser, cast: Cast, store: Store) -> None:
    typed = launch_form(cast, name="Bad Name", cpus="８", memory="0.5", ssh_key="ssh-dss AAAA")
    typed[f"mount-{cast.volume}"] = "rw"
    answer = alice.post("/launch", typed)
    assert answer.status_code == 422
    for name, part in (("name", "cannot be a workspace name"), ("cpus", "not a number of CPUs"),
                       ("memory", "not a size"), ("ssh_key", "Line 1 is a DSA key"), ("mounts", "read-only")):
        assert part in wrong(answer.text, name), name
    for value in ("Bad Name", "８", "0.5"):
        assert f'value="{value}"' in answer.text
    assert "ssh-dss AAAA" in answer.text and 'aria-invalid="true"' in answer.text
    assert count(store, Workspace) == count(store, SshKey) == 0


def test_launch_with_a_key_keeps_both(alice: Browser, cast: Cast, store: Store) -> None:
    assert alice.post("/launch", launch_form(cast, image_id=cast.slim, ssh_key=KEY)).status_code == 303
    assert count(store, SshKey) == 1
    assert "Public key" not in alice.get("/launch").text


def test_slim_image_without_a_key_asks_for_one(alice: Browser, cast: Cast) -> None:
    answer = alice.post("/launch", launch_form(cast, image_id=cast.slim))
    assert "Add an SSH key first" in wrong(answer.text, "ssh_key")


@pytest.mark.parametrize("missing", ["name", "image_id"])
def test_launch_without_a_field_is_a_problem_not_a_fault(missing: str, alice: Browser, cast: Cast) -> None:
    typed = launch_form(cast)
    del typed[missing]
    answer = alice.post("/launch", typed)
    assert answer.status_code == 422 and wrong(answer.text, missing)


def test_name_twice_is_told_with_a_free_one(alice: Browser, cast: Cast) -> None:
    alice.post("/launch", launch_form(cast))
    answer = alice.post("/launch", launch_form(cast))
    assert "Try run-2" in wrong(answer.text, "name")


def test_keys_are_kept_by_line_and_refused_by_line(alice: Browser, store: Store) -> None:
    answer = alice.post("/keys", {"text": f"{KEY}\nnonsense here\n-----BEGIN OPENSSH PRIVATE KEY-----", "title": ""})
    assert answer.status_code == 422
    assert "Line 2" in wrong(answer.text, "text") and "Line 3" in wrong(answer.text, "text")
    assert count(store, SshKey) == 0
    assert alice.post("/keys", {"text": f"{KEY}\n{OTHER_KEY}", "title": ""}).status_code == 303
    page = alice.get("/keys").text
    assert "2 keys added" in page and "bob@laptop" in page
    assert "is there already" in wrong(alice.post("/keys", {"text": KEY}).text, "text")


def test_key_is_removed(alice: Browser, store: Store) -> None:
    alice.post("/keys", {"text": KEY})
    with store.read() as db:
        key_id = db.scalars(select(SshKey.id)).one()
    assert alice.post(f"/keys/{key_id}/remove").status_code == 303
    assert count(store, SshKey) == 0


def test_password_problems_stand_beside_their_fields(alice: Browser) -> None:
    answer = alice.post("/me/password", {"old": "not this one", "new": "short"})
    assert answer.status_code == 422
    assert "present password" in wrong(answer.text, "old") and "at least 10" in wrong(answer.text, "new")
    assert "not this one" not in answer.text


def test_nul_and_overlong_stand_beside_their_field(alice: Browser, cast: Cast) -> None:
    answer = alice.post("/launch", launch_form(cast, name="a\x00b", cpus="9" * 1001))
    assert "NUL" in wrong(answer.text, "name") and "longer than 1000" in wrong(answer.text, "cpus")


def test_volume_is_added_and_forgotten(carol: Browser, cast: Cast, store: Store) -> None:
    typed = {"name": "Data!", "team_id": "none", "host_folder": "/etc", "target": "/usr"}
    refused = carol.post("/house/volumes", typed)
    assert all(wrong(refused.text, name) for name in ("name", "team_id", "host_folder", "target"))
    assert carol.post("/house/volumes", {"name": "scratch", "team_id": cast.team}).status_code == 303
    with store.read() as db:
        volume_id = db.scalars(select(Volume.id).where(Volume.name == "scratch")).one()
    assert carol.post(f"/house/volumes/{volume_id}/remove").status_code == 303


def test_mounted_volume_is_not_forgotten(carol: Browser, alice: Browser, cast: Cast) -> None:
    alice.post("/launch", launch_form(cast, **{f"mount-{cast.volume}": "ro"}))
    answer = carol.post(f"/house/volumes/{cast.volume}/remove")
    assert answer.status_code == 422 and "is mounted in run-1" in answer.text


def test_team_is_made_and_its_members_change(carol: Browser, cast: Cast, store: Store) -> None:
    assert wrong(carol.post("/house/teams", {"name": "alice"}).text, "name")
    carol.post("/house/teams", {"name": "speech"})
    with store.read() as db:
        team_id = db.scalars(select(Team.id).where(Team.name == "speech")).one()
    carol.post(f"/house/teams/{team_id}/members", {"member_id": cast.bob})
    assert count(store, TeamMember) == 3
    carol.post(f"/house/teams/{team_id}/members/{cast.bob}/remove")
    assert count(store, TeamMember) == 2


def test_invite_link_is_shown_once(carol: Browser, store: Store) -> None:
    answer = carol.post("/house/members/invite", {"role": "member"})
    link = re.search(r"http://localhost/welcome/[\w-]+", answer.text)
    assert link and link[0] not in carol.get("/house/members").text
    assert carol.get(link[0].removeprefix("http://localhost")).status_code == 200
    with store.read() as db:
        invite_id = db.scalars(select(Invite.id)).one()
    carol.post(f"/house/invites/{invite_id}/withdraw")
    assert carol.get(link[0].removeprefix("http://localhost")).status_code == 404


def test_member_is_changed_by_an_admin(carol: Browser, cast: Cast) -> None:
    page = f"/house/members/{cast.bob}"
    assert "at least 10" in wrong(carol.post(f"{page}/password", {"new": "short"}).text, "new")
    for action, data, seen in (("password", {"new": "another few words"}, "password is changed"),
                               ("role", {"role": "admin"}, "role is changed"), ("deactivate", {}, "no longer sign in"),
                               ("activate", {}, "can sign in again")):
        assert carol.post(f"{page}/{action}", data).status_code == 303
        assert seen in carol.get(page).text
    alone = carol.post(f"/house/members/{cast.carol}/role", {"role": "member"})
    assert alone.status_code == 303         # bob is an administrator now
    assert carol.get("/house").status_code == 303


def test_the_last_admin_stays(carol: Browser, cast: Cast) -> None:
    answer = carol.post(f"/house/members/{cast.carol}/role", {"role": "member"})
    assert answer.status_code == 422 and "only administrator" in answer.text
