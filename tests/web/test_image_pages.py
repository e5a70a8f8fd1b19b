"""Pages of images: who sees which, how one is added, watched, pulled, cancelled, mended, deleted; and saving one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from web.conftest import NOON, Browser, Cast
from web.test_forms import wrong
from web.test_launch_gpus import said
from webapp.domain.actor import Actor
from webapp.domain.operation import OperationKind
from webapp.services import images, operations
from webapp.store.session import Store
from webapp.store.tables import Host, HostImage, Image, Operation, Team, TeamMember

Launch = Callable[..., str]
GIB = 2**30
DOCKERFILE = "FROM debian:12.11\nRUN echo one\nRUN false\n"
DIGEST = "sha256:" + "9f86d081884c" + "0" * 52


def image(store: Store, image_id: str) -> Image:
    with store.read() as db:
        return db.get_one(Image, image_id)


def newest(store: Store, kind: OperationKind) -> Operation:
    with store.read() as db:
        return db.scalars(select(Operation).where(Operation.kind == kind).order_by(
            Operation.created_at.desc(), Operation.id)).all()[0]


def waiting(store: Store) -> list[Operation]:
    with store.read() as db:
        return list(db.scalars(select(Operation).where(Operation.state == "waiting")))


def at_work(store: Store, operation_id: str, **columns: Any) -> None:
    """As the agent writes it."""
    with store.write() as db:
        operation = db.get_one(Operation, operation_id)
        operation.state, operation.started_at = "running", NOON
        for column, value in columns.items():
            setattr(operation, column, value)


def added(carol: Browser, **typed: str) -> str:
    answer = carol.post("/images/add", {"title": "Mine", "source": "base", "has_jupyter": "yes", **typed})
    assert answer.status_code == 303, answer.text
    return str(answer.headers["Location"].rpartition("/")[2])


def saved(store: Store, cast: Cast, workspace_id: str, *, owner: str = "alice", team: str | None = None,
          title: str = "Kept") -> str:
    """Id of an image that is whole."""
    with store.write() as db:
        operation = images.save(db, Actor(getattr(cast, owner), False), workspace_id, title=title, team_id=team,
                                now=NOON)
        assert operation.image_id
        operation.state, operation.ended_at = "done", NOON
        db.get_one(Image, operation.image_id).reference = f"berth-test/saved:{operation.image_id}"
        return operation.image_id


# -- who sees what


def test_members_see_what_they_may_launch_and_no_more(alice: Browser, bob: Browser, carol: Browser, store: Store,
                                                      cast: Cast, launch: Launch) -> None:
    workspace_id = launch()
    own = saved(store, cast, workspace_id, title="only-alices")
    teams = saved(store, cast, workspace_id, title="for-vision", team=cast.team)
    for browser, sees in ((alice, {own, teams}), (bob, {teams}), (carol, {own, teams})):
        for path in ("/images", "/poll/images"):
            text = browser.get(path).text
            assert {each for each in (own, teams) if f"/images/{each}" in text} == sees
        for image_id in (own, teams):
            for path in (f"/images/{image_id}", f"/poll/images/{image_id}"):
                assert browser.get(path).status_code == (200 if image_id in sees else 404)
    assert "only-alices" not in bob.get("/launch").text and "for-vision" in bob.get("/launch").text


def test_member_who_left_the_team_sees_its_images_no_more(bob: Browser, store: Store, cast: Cast,
                                                          launch: Launch) -> None:
    teams = saved(store, cast, launch(), team=cast.team)
    with store.write() as db:
        db.delete(db.get_one(TeamMember, (cast.team, cast.bob)))
    assert bob.get(f"/images/{teams}").status_code == 404 and "Kept" not in bob.get("/images").text


def test_withdrawn_ones_are_for_administrators(alice: Browser, carol: Browser, cast: Cast) -> None:
    carol.post(f"/images/{cast.slim}/withdraw")
    assert "Withdrawn" in carol.get("/images").text and "Slim" not in alice.get("/images").text
    carol.post(f"/images/{cast.slim}/offer")
    assert "Withdrawn" not in carol.get("/images").text and "Slim" in alice.get("/images").text


@pytest.mark.parametrize("path", ["/images/add", "/images/ID/prepare", "/images/ID/pull", "/images/ID/withdraw",
                                  "/images/ID/offer", "/images/ID/delete"])
def test_only_administrators_act_on_everybodys_images(path: str, alice: Browser, store: Store, cast: Cast) -> None:
    assert alice.post(path.replace("ID", cast.image)).status_code == 403
    assert image(store, cast.image).withdrawn_at is None
    with store.read() as db:
        assert db.scalars(select(Operation)).all() == []


def test_image_says_all_that_is_known_of_it(carol: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    launch()
    with store.write() as db:
        row = db.get_one(Image, cast.image)
        row.digest, row.architecture, row.size_bytes = DIGEST, "amd64", 8 * GIB
        db.add(HostImage(host_id=cast.host, image_id=cast.image, engine_id="sha256:1", size_bytes=8 * GIB,
                         seen_at=NOON))
    listed, own = said(carol.get("/images").text), carol.get(f"/images/{cast.image}").text
    assert "example.org/berth:1 9f86d081884c Ready CUDA 12.8 · amd64 SSH, Jupyter 8 GiB atlas everybody 1" in listed
    assert DIGEST in own and "alice 1 workspace" in said(own) and "8 GiB" in own and "atlas" in own
    assert "PyTorch 8 GiB" in said(carol.get("/house/hosts").text)


# -- adding one


def test_base_is_prepared(carol: Browser, store: Store) -> None:
    image_id = added(carol, base="pytorch/pytorch:2.9.0", cuda_version="12.8")
    row, asked = image(store, image_id), newest(store, OperationKind.IMAGE_PREPARE)
    assert (row.title, row.base, asked.image_id) == ("Mine", "pytorch/pytorch:2.9.0", image_id)
    assert asked.arguments["with_jupyter"] is True
    assert "Waiting for its turn" in carol.get(f"/images/{image_id}").text


def test_dockerfile_is_prepared(carol: Browser, store: Store) -> None:
    image_id = added(carol, source="dockerfile", dockerfile=DOCKERFILE.replace("\n", "\r\n"), base="left over")
    assert image(store, image_id).dockerfile == DOCKERFILE and image(store, image_id).base is None
    assert "from a Dockerfile" in carol.get("/images").text


def test_ready_image_is_added(carol: Browser, store: Store) -> None:
    answer = carol.post("/images/add", {"title": "Ready", "source": "ready", "reference": "registry.lab/mine:1"})
    image_id = answer.headers["Location"].rpartition("/")[2]
    assert image(store, image_id).reference == "registry.lab/mine:1" and not image(store, image_id).has_jupyter


@pytest.mark.parametrize(("typed", "field", "part"), [
    ({"source": "base", "base": "pytorch/pytorch:latest"}, "base", "latest"),
    ({"source": "base", "base": ""}, "base", "Enter the image"),
    ({"source": "dockerfile", "dockerfile": " \n"}, "dockerfile", "Enter a Dockerfile"),
    ({"source": "dockerfile", "dockerfile": "FROM debian:12.11\nCOPY a b\nRUNN x"}, "dockerfile", "Line 3"),
    ({"source": "ready", "reference": ""}, "reference", "Enter a workspace image"),
    ({"source": "", "base": "a:1"}, "source", "Choose what"),
    ({"source": "base", "base": "a:1", "cuda_version": "new"}, "cuda_version", "not a CUDA version"),
    ({"source": "base", "base": "a:1", "title": ""}, "title", ""),
])
def test_what_is_wrong_stands_beside_its_field(typed: dict[str, str], field: str, part: str, carol: Browser,
                                               store: Store) -> None:
    answer = carol.post("/images/add", {"title": "My title", **typed})
    assert answer.status_code == 422
    assert wrong(answer.text, field) and part in wrong(answer.text, field)
    assert "title" in typed or 'value="My title"' in answer.text
    with store.read() as db:
        assert db.scalars(select(Operation)).all() == []


def test_dockerfile_that_was_refused_is_kept_to_the_letter(carol: Browser) -> None:
    text = "\n\nFROM debian\n  RUN  x"
    answer = carol.post("/images/add", {"title": "x", "source": "dockerfile", "dockerfile": text})
    assert ">\n" + text + "</textarea>" in answer.text      # browsers leave out the first line break


# -- watching it


def test_pull_shows_bytes_and_layers(carol: Browser, alice: Browser, store: Store, cast: Cast) -> None:
    assert carol.post(f"/images/{cast.image}/pull").status_code == 303
    operation = newest(store, OperationKind.IMAGE_PULL)
    at_work(store, operation.id, progress={"step": "pull", "done_bytes": GIB, "total_bytes": 4 * GIB, "layers_done": 5,
                                           "layers_total": 9})
    for path in ("/images", "/poll/images", f"/images/{cast.image}", f"/poll/images/{cast.image}"):
        text = carol.get(path).text
        assert "1 GiB of 4 GiB · 5 of 9 layers" in text and 'value="25"' in text and "Pulling" in text
        assert 'data-every="1"' in text
    assert "Pulling" in alice.get("/images").text
    assert f"/cancel/{operation.id}" not in alice.get("/images").text


def test_preparation_shows_its_steps_and_its_log(carol: Browser, store: Store) -> None:
    image_id = added(carol, source="dockerfile", dockerfile=DOCKERFILE)
    at_work(store, newest(store, OperationKind.IMAGE_PREPARE).id, progress={"step": "base", "number": 2, "of": 3},
            log="Step 2/3 : RUN echo one\n\x1b[31m<b>one</b>\x1b[0m")
    text = carol.get(f"/poll/images/{image_id}").text
    assert re.findall(r'<li id="step-(\w+)" data-s="(\w*)"', text) == [
        ("pull", "done"), ("base", "now"), ("check", ""), ("build", "")]
    assert "2 of 3" in text and "&lt;b&gt;one&lt;/b&gt;</pre>" in text and "data-follow" in text


def test_image_of_a_base_has_no_step_for_a_dockerfile(carol: Browser, store: Store) -> None:
    image_id = added(carol, base="debian:12.11")
    at_work(store, newest(store, OperationKind.IMAGE_PREPARE).id, progress={"step": "build", "number": 1, "of": 9})
    assert re.findall(r'id="step-(\w+)"', carol.get(f"/images/{image_id}").text) == ["pull", "check", "build"]


def failed(carol: Browser, store: Store, line: int | None = 3) -> str:
    image_id = added(carol, source="dockerfile", dockerfile=DOCKERFILE)
    at_work(store, newest(store, OperationKind.IMAGE_PREPARE).id)
    with store.write() as db:
        operation = db.get_one(Operation, newest(store, OperationKind.IMAGE_PREPARE).id)
        operation.state, operation.ended_at, operation.log = "failed", NOON, "boom"
        operation.progress = {"step": "base", "number": 3, "of": 3}
        operation.reason = {"code": "build_failed", "facts": {"line": line, "command": "RUN false",
                                                              "detail": "exit code 1"}}
    return image_id


def test_broken_dockerfile_shows_its_line_and_can_be_mended(carol: Browser, store: Store) -> None:
    image_id = failed(carol, store)
    text = carol.get(f"/images/{image_id}").text
    assert "Line 3:" in text and re.search(r'<li class="bad" id="broken-line"[^>]*><code>RUN false</code>', text)
    assert "boom" in text and re.findall(r'data-s="bad"', text) and "It could not be prepared." in text
    assert "RUN false</textarea>" in text.replace("\n</textarea>", "</textarea>")
    assert "It could not be prepared." in carol.get("/images").text
    mended = DOCKERFILE.replace("false", "true")
    assert carol.post(f"/images/{image_id}/prepare", {"dockerfile": mended}).status_code == 303
    assert image(store, image_id).dockerfile == mended
    with store.read() as db:
        assert len(db.scalars(select(Image).where(Image.title == "Mine")).all()) == 1


def test_mended_dockerfile_that_cannot_be_read_is_kept(carol: Browser, store: Store) -> None:
    image_id = failed(carol, store)
    answer = carol.post(f"/images/{image_id}/prepare", {"dockerfile": "FROM debian:12.11\nRUNN x"})
    assert answer.status_code == 422 and "Line 2" in wrong(answer.text, "dockerfile")
    assert "RUNN x</textarea>" in answer.text and image(store, image_id).dockerfile == DOCKERFILE


def test_failure_without_a_line_marks_none(carol: Browser, store: Store) -> None:
    text = carol.get(f"/images/{failed(carol, store, line=None)}").text
    assert "broken-line" not in text and "It could not be prepared." in text


def test_members_are_not_shown_a_dockerfile(alice: Browser, carol: Browser, store: Store) -> None:
    text = alice.get(f"/images/{failed(carol, store)}").text
    assert "RUN false</code>" not in text and "textarea" not in text


def test_what_waits_or_runs_is_cancelled(carol: Browser, alice: Browser, store: Store, cast: Cast) -> None:
    carol.post(f"/images/{cast.image}/pull")
    operation = newest(store, OperationKind.IMAGE_PULL)
    path = f"/images/{cast.image}/cancel/{operation.id}"
    assert alice.post(path).status_code == 404
    at_work(store, operation.id)
    assert carol.post(path).status_code == 303
    assert "Being cancelled" in carol.get(f"/images/{cast.image}").text
    with store.write() as db:
        operations.finish(db, operation.id, now=NOON, cancelled=True)
    text = carol.get(f"/images/{cast.image}").text
    assert "The pull was cancelled." in text and "Ready" in text
    assert carol.post(path).status_code == 303 and "It had ended already." in carol.get("/images").text


def test_what_is_in_the_way_is_said_on_its_page(carol: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    own = saved(store, cast, launch())
    answer = carol.post(f"/images/{own}/pull")
    assert answer.status_code == 409 and "is in no registry" in answer.text and "Kept" in answer.text


def test_odd_work_of_a_newer_agent_does_no_harm(carol: Browser, store: Store, cast: Cast) -> None:
    carol.post(f"/images/{cast.image}/pull")
    at_work(store, newest(store, OperationKind.IMAGE_PULL).id, progress={"step": "beam", "done_bytes": 1})
    assert "Pulling" in carol.get("/images").text and carol.get(f"/images/{cast.image}").status_code == 200


def test_tag_that_moved_and_driver_that_is_too_old_are_said(carol: Browser, store: Store, cast: Cast) -> None:
    carol.post(f"/images/{cast.image}/pull")
    operation = newest(store, OperationKind.IMAGE_PULL)
    at_work(store, operation.id)
    with store.write() as db:
        operations.finish(db, operation.id, now=NOON, result={"moved_to": DIGEST})
    assert "given this name to another image" in carol.get(f"/images/{cast.image}").text


# -- deleting one


def test_used_image_is_not_deleted_and_says_who_uses_it(carol: Browser, store: Store, cast: Cast,
                                                        launch: Launch) -> None:
    launch()
    assert "alice (1 workspace" in said(carol.get(f"/images/{cast.image}/delete").text)
    answer = carol.post(f"/images/{cast.image}/delete")
    assert answer.status_code == 409 and "is in use by 1 workspaces" in answer.text
    assert image(store, cast.image).deleted_at is None


def test_unused_image_is_deleted(carol: Browser, store: Store, cast: Cast) -> None:
    assert carol.post(f"/images/{cast.slim}/delete").headers["Location"] == "/images"
    text = carol.get("/images").text
    assert "Slim is being deleted." in text and "Being deleted" in text
    operation = newest(store, OperationKind.IMAGE_DELETE)
    assert (operation.image_id, operation.host_id) == (cast.slim, cast.host)


def test_saved_image_is_deleted_by_who_saved_it(alice: Browser, bob: Browser, store: Store, cast: Cast,
                                                launch: Launch) -> None:
    teams = saved(store, cast, launch(), team=cast.team)
    assert "do-delete" not in bob.get(f"/images/{teams}").text
    assert bob.get(f"/images/{teams}/delete").status_code == 403 == bob.post(f"/images/{teams}/delete").status_code
    assert "cannot be had again" in alice.get(f"/images/{teams}/delete").text
    assert alice.post(f"/images/{teams}/delete").status_code == 303
    assert newest(store, OperationKind.IMAGE_DELETE).image_id == teams


# -- saving one


def test_workspace_is_saved_for_its_owner_or_a_team(alice: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    workspace_id = launch("vit")
    form = alice.get(f"/workspaces/{workspace_id}/save").text
    assert 'value="vit · PyTorch"' in form and "Team vision" in form and "can read what is in it" in form
    assert alice.post(f"/workspaces/{workspace_id}/save", {"title": "Mine alone"}).status_code == 303
    with store.read() as db:
        row = db.scalars(select(Image).where(Image.title == "Mine alone")).one()
    assert (row.owner_id, row.team_id, row.saved_from) == (cast.alice, None, workspace_id)
    page = alice.get(f"/workspaces/{workspace_id}").text
    assert "Being saved as the image “Mine alone”" in page and "do-cancel-save" in page and 'data-every="1"' in page
    assert "Being saved" in alice.get("/images").text or "Waiting" in alice.get("/images").text
    answer = alice.post(f"/workspaces/{workspace_id}/save", {"title": "Ours", "team_id": cast.team})
    assert answer.status_code == 303


def test_what_came_of_saving_is_said_on_the_page_of_the_workspace(alice: Browser, store: Store, cast: Cast,
                                                                  launch: Launch) -> None:
    workspace_id = launch()
    image_id = saved(store, cast, workspace_id, title="Done")
    text = alice.get(f"/workspaces/{workspace_id}").text
    assert "Saved as the image “Done”." in text and f"/launch?image={image_id}" in text
    chosen = alice.get(f"/launch?image={image_id}").text
    assert re.search(rf'value="{image_id}"[^>]* checked', chosen) and "saved by you" in chosen
    alice.post(f"/workspaces/{workspace_id}/save", {"title": "Again"})
    operation = newest(store, OperationKind.WORKSPACE_SAVE)
    at_work(store, operation.id)
    with store.write() as db:
        failed_operation = db.get_one(Operation, operation.id)
        failed_operation.created_at = NOON.replace(hour=13)
        failed_operation.state, failed_operation.ended_at = "failed", NOON
        failed_operation.reason = {"code": "disk_full", "facts": {"host": "atlas", "detail": "no space"}}
        operations.forget_unsaved(db)
    text = alice.get(f"/workspaces/{workspace_id}").text
    assert "could not be saved" in text and "The disk of atlas is full" in text


def test_saving_is_cancelled(alice: Browser, bob: Browser, store: Store, launch: Launch) -> None:
    workspace_id = launch()
    alice.post(f"/workspaces/{workspace_id}/save", {"title": "Never mind"})
    operation = newest(store, OperationKind.WORKSPACE_SAVE)
    assert bob.post(f"/workspaces/{workspace_id}/save/{operation.id}/cancel").status_code == 404
    assert alice.post(f"/workspaces/{workspace_id}/save/{operation.id}/cancel").status_code == 303
    assert "was cancelled" in alice.get(f"/workspaces/{workspace_id}").text
    alice.post(f"/workspaces/{workspace_id}/save", {"title": "Nor this"})
    again = next(each for each in waiting(store) if each.id != operation.id)
    answer = alice.post(f"/images/{again.image_id}/cancel/{again.id}")
    assert answer.headers["Location"] == "/images"      # its own page went with it
    assert "Never mind" not in alice.get("/images").text


def test_saving_is_refused_beside_its_field(alice: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    workspace_id = launch()
    with store.write() as db:
        db.add(Team(id="other", name="speech", gid=29999, created_at=NOON))
    answer = alice.post(f"/workspaces/{workspace_id}/save", {"title": "  ", "team_id": "other"})
    assert answer.status_code == 422 and wrong(answer.text, "title") and "none of your teams" in wrong(
        answer.text, "team_id")
    busy = launch("run-2", phase="starting", observed_generation=0)
    late = alice.post(f"/workspaces/{busy}/save", {"title": "Too early"})
    assert late.status_code == 409 and "cannot be done now" in late.text and 'value="Too early"' in late.text
    assert "do-save" not in alice.get(f"/workspaces/{busy}").text


def test_an_administrator_does_not_save_what_others_have(carol: Browser, store: Store, launch: Launch) -> None:
    workspace_id = launch()
    assert "do-save" not in carol.get(f"/workspaces/{workspace_id}").text
    assert carol.get(f"/workspaces/{workspace_id}/save").status_code == 403
    assert carol.post(f"/workspaces/{workspace_id}/save", {"title": "Mine"}).status_code == 403
    with store.read() as db:
        assert db.scalars(select(Image).where(Image.saved_from.is_not(None))).all() == []


def test_hosts_without_images_say_so(carol: Browser, store: Store, cast: Cast) -> None:
    with store.write() as db:
        db.get_one(Host, cast.host).capabilities = {"architecture": "amd64"}
    assert "none of the catalogue" in carol.get("/house/hosts").text
