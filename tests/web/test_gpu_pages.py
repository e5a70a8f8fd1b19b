"""Cards on the pages of workspaces and hosts, and what Start says when there are none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from web.conftest import NOON, Browser, Cast
from web.racks import A100, H100, busy, card, cards_of, divided, give_back, lost, mig_uuid, saw, uuid, without_uuid
from web.test_launch_gpus import said
from webapp.domain.gpu import InventoryTrouble
from webapp.domain.gpu_check import CheckState, Finding
from webapp.store.session import Store
from webapp.store.tables import Host, Workspace

Launch = Callable[..., str]
TWO = (uuid(0), uuid(1))


def panel(text: str) -> str:
    return said(text.partition('id="gpus"')[2].partition("</section>")[0])


def stopped(store: Store, launch: Launch, name: str = "mine", gpus: tuple[str, ...] = TWO) -> str:
    workspace_id = launch(name, gpus=gpus, phase="stopped", desired="stopped")
    give_back(store, workspace_id)
    return workspace_id


# -- a workspace


def test_running_workspace_shows_its_cards_and_what_stop_does(alice: Browser, store: Store, cast: Cast,
                                                              launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1), card(2))
    text = alice.get(f"/workspaces/{launch(gpus=TWO)}").text
    for number in (0, 1):
        assert f"GPU {number} held {A100} · 80 GiB" in panel(text)
    assert "GPU 2" not in panel(text) and f"2 × {A100}" in text
    assert "Stop gives its GPUs back; the container and all that is in it stay." in text
    assert 'aria-describedby="stop-hint"' in text


def test_workspace_without_cards_has_no_such_panel(alice: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    saw(store, cast.host, card(0))
    text = alice.get(f"/workspaces/{launch()}").text
    assert panel(text) == "" and "GPUs back" not in text


def test_stopped_workspace_shows_the_cards_it_gave_back(alice: Browser, store: Store, cast: Cast,
                                                        launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1))
    workspace_id = stopped(store, launch)
    launch("bobs", owner="bob", gpus=(uuid(1),))
    text = panel(alice.get(f"/workspaces/{workspace_id}").text)
    assert f"GPU 0 Free {A100} · 80 GiB · given back" in text and "GPU 1 bob" in text
    assert "Start takes the same ones when they are free, else others like them." in text
    assert f"2 × {A100} · given back" in said(alice.get("/").text)


def test_cards_are_held_until_the_container_is_seen_down(alice: Browser, store: Store, cast: Cast,
                                                         launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1))
    workspace_id = launch(gpus=TWO)
    alice.post(f"/workspaces/{workspace_id}/stop")
    text = panel(alice.get(f"/workspaces/{workspace_id}").text)
    assert "GPU 0 held" in text and "given back as soon as its container is seen down" in text


def test_cards_stay_with_it_while_the_host_is_silent(alice: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1))
    workspace_id = launch(gpus=TWO, phase="unknown")
    with store.write() as db:
        db.get_one(Host, cast.host).unreachable_since = NOON
    text = panel(alice.get(f"/workspaces/{workspace_id}").text)
    assert "GPU 0 held" in text and "They stay its own while the host does not answer." in text


def test_lost_card_is_flagged_on_every_page_of_its_workspace(alice: Browser, carol: Browser, store: Store, cast: Cast,
                                                             launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1))
    workspace_id = launch(gpus=TWO)
    saw(store, cast.host, card(0), lost(1))
    text = panel(alice.get(f"/workspaces/{workspace_id}").text)
    assert "GPU 1 Lost" in text and "is no longer listed by the driver" in text and "GPU 0 held" in text
    assert cards_of(store, workspace_id)[1] == list(TWO)
    assert "1 lost" in said(alice.get("/").text) and "1 lost" in said(carol.get("/house/workspaces").text)


def test_simulated_cards_are_called_so_on_every_page(alice: Browser, carol: Browser, store: Store, cast: Cast,
                                                     launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1), simulated=True)
    workspace_id = launch(gpus=TWO)
    pages = [alice.get(path).text for path in ("/", "/poll/workspaces", f"/workspaces/{workspace_id}")]
    pages += [carol.get(path).text for path in ("/house/workspaces", "/house/hosts")]
    assert all("simulated" in text for text in pages)


def test_slice_that_is_gone_is_named(alice: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    saw(store, cast.host, divided(1))
    workspace_id = stopped(store, launch, gpus=(mig_uuid(10),))
    saw(store, cast.host, card(1))
    assert f"{mig_uuid(10)} is not there any more." in panel(alice.get(f"/workspaces/{workspace_id}").text)
    assert "1 × GPU" in said(alice.get("/").text)


FACTS = {"torch": "2.9.0", "cuda": "12.8", "wanted": 2, "seen": 2}


@pytest.mark.parametrize(("check", "word", "sentence"), [
    (Finding(CheckState.RUNNING, "torch_running"), "PyTorch check runs", "PyTorch is trying the GPUs."),
    (Finding(CheckState.PASSED, "torch_passed", FACTS), "PyTorch check passed", "computed on each of the 2 GPUs"),
    (Finding(CheckState.FAILED, "torch_card_wrong", {"number": 1}), "PyTorch check failed", "Do not trust its results"),
    (Finding(CheckState.UNAVAILABLE, "torch_missing"), "Not checked with PyTorch", "no PyTorch in the image"),
    (Finding(CheckState.SIMULATED, "torch_simulated"), "Simulated: not checked", "nothing computes on them"),
])
def test_check_with_pytorch_is_a_badge_and_a_sentence(check: Finding, word: str, sentence: str, alice: Browser,
                                                      store: Store, cast: Cast, launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1))
    workspace_id = launch(gpus=TWO, gpu_check=check.as_json(NOON))
    text = panel(alice.get(f"/workspaces/{workspace_id}").text)
    assert word in text and sentence in text


@pytest.mark.parametrize("check", [{"state": "<b>odd</b>", "code": "newer"}, {"state": "passed"}, {"odd": 1}])
def test_check_of_a_newer_agent_does_no_harm(check: dict[str, object], alice: Browser, store: Store, cast: Cast,
                                             launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1))
    answer = alice.get(f"/workspaces/{launch(gpus=TWO, gpu_check=check)}")
    assert answer.status_code == 200 and "<b>odd" not in answer.text


def test_step_about_the_cards_is_in_the_list(alice: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1))
    assert "The GPUs inside are the right ones" in alice.get(f"/workspaces/{launch(gpus=TWO, phase='starting')}").text


def test_start_without_free_cards_says_so_on_its_page(alice: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1))
    workspace_id = stopped(store, launch)
    launch("bobs", owner="bob", gpus=(uuid(0),))
    answer = alice.post(f"/workspaces/{workspace_id}/start")
    assert answer.status_code == 409 and "2 wanted, at most 1 to be had" in answer.text
    note = said(answer.text.partition('id="no-capacity"')[2].partition("</section>")[0])
    assert "nothing in it changed" in note and f"GPU 0 ({A100}) is taken" in note
    assert 'href="/launch"' in answer.text and "do-start" in answer.text
    with store.read() as db:
        assert db.get_one(Workspace, workspace_id).desired == "stopped"


def test_start_without_free_cards_is_said_in_the_readers_language(alice: Browser, store: Store, cast: Cast,
                                                                  launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1))
    workspace_id = stopped(store, launch)
    saw(store, cast.host, lost(0), card(1))
    alice.client.set_cookie("berth_language", "zh_Hans_CN", domain="localhost")
    answer = alice.post(f"/workspaces/{workspace_id}/start")
    assert answer.status_code == 409 and "单台主机最多可用 1 张" in answer.text and "没有启动" in answer.text


def test_start_takes_the_same_cards_and_shows_them(alice: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1), card(2))
    workspace_id = stopped(store, launch)
    assert alice.post(f"/workspaces/{workspace_id}/start").status_code == 303
    assert cards_of(store, workspace_id) == (list(TWO), list(TWO))


# -- hosts


def test_host_shows_driver_cards_and_who_holds_them(carol: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    outside = card(2)
    saw(store, cast.host, card(0), lost(1), outside, without_uuid(3), card(4, H100), others=busy(outside))
    launch("mine", gpus=(uuid(0),))
    text = carol.get("/house/hosts").text
    plain = said(text)
    assert "570.86.15, CUDA up to 12.8" in plain and f"3 × {A100} + 1 × Orin (nvgpu) + 1 × {H100}" in plain
    assert "GPUs last read just now" in plain
    assert f"GPU 0 {A100} alice since" in plain and "80 GiB 00000000:00:00.0" in plain
    assert f'aria-label="UUID of GPU 0">{uuid(0)}</pre>' in text
    assert "is no longer listed by the driver" in plain and "in use by python (pid 20931)" in plain
    assert "has no UUID" in plain and "memory shared with the host" in plain
    assert "Nothing to mend" not in plain


def test_host_whose_cards_are_well_has_nothing_to_mend(carol: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0))
    assert "Nothing to mend" in carol.get("/house/hosts").text


def test_host_without_a_driver_says_so_and_that_is_no_fault(carol: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, trouble=InventoryTrouble("driver_not_loaded", {"host": "atlas"}))
    text = carol.get("/house/hosts").text
    assert "atlas has no NVIDIA driver running." in text and "none found" in text and "Nothing to mend" in text


def test_trouble_of_a_driver_is_something_to_mend(carol: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0))
    saw(store, cast.host, trouble=InventoryTrouble("driver_library_version_mismatch", {"host": "atlas"}))
    text = carol.get("/house/hosts").text
    assert text.count("was upgraded while the old one was running") == 1 and "Nothing to mend" not in text


def test_host_that_nobody_has_looked_at_claims_nothing(carol: Browser, store: Store, cast: Cast) -> None:
    plain = said(carol.get("/house/hosts").text)
    assert "GPUs — NVIDIA driver — GPUs last read not yet" in plain
