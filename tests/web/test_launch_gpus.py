"""Cards in the launch form: what each says of itself, which may be chosen, and what a refusal keeps and offers."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from sqlalchemy import func, select

from web.conftest import NOON, Browser, Cast
from web.racks import (
    A100,
    H100,
    add_host,
    busy,
    card,
    cards_of,
    divided,
    lost,
    mig_uuid,
    saw,
    unified,
    uuid,
    without_uuid,
)
from web.test_forms import launch_form, wrong
from webapp.domain.gpu import InventoryTrouble
from webapp.store.session import Store
from webapp.store.tables import GpuClaim, Host, Image, Workspace

Launch = Callable[..., str]
PAGES = ("/launch", "/poll/launch/gpus")


def tiles(text: str) -> dict[str, str]:
    """Key of a card → the markup of its tile."""
    found = re.findall(r'<(?:label|div) class="b-pick[" ].*?</(?:label|div)>', text, re.S)
    return {re.findall(r'data-key="\S+ ([^"]+)"', tile)[0]: tile for tile in found}


def said(markup: str) -> str:
    """What a tile says, without what only a ticked one shows."""
    shown = re.sub(r'<span class="late">.*?</span>', "", markup, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", shown)).split())


def may_be_ticked(markup: str) -> bool:
    return "<input" in markup and " disabled" not in markup


def is_ticked(markup: str) -> bool:
    return bool(re.search(r"<input[^>]* checked", markup))


def way(text: str) -> str:
    return re.findall(r'name="gpu_way" value="(\w+)" checked', text)[0]


def made(store: Store) -> list[Workspace]:
    with store.read() as db:
        return list(db.scalars(select(Workspace).order_by(Workspace.name)))


def claims(store: Store) -> int:
    with store.read() as db:
        return db.scalar(select(func.count()).select_from(GpuClaim)) or 0


# -- what tiles say


@pytest.mark.parametrize("path", PAGES)
def test_free_card_has_index_model_memory_and_may_be_ticked(path: str, alice: Browser, store: Store,
                                                            cast: Cast) -> None:
    saw(store, cast.host, card(0), card(3, H100, memory_total_bytes=85520809984))
    shown = tiles(alice.get(path).text)
    assert said(shown[uuid(0)]) == f"GPU 0 {A100} 80 GiB Free"
    assert said(shown[uuid(3)]) == f"GPU 3 {H100} 79.6 GiB Free"
    assert all(may_be_ticked(tile) and f'value="{key}"' in tile for key, tile in shown.items())


@pytest.mark.parametrize("path", PAGES)
def test_held_card_names_who_and_since_when(path: str, alice: Browser, bob: Browser, store: Store, cast: Cast,
                                            launch: Launch) -> None:
    saw(store, cast.host, card(0), card(1))
    launch("secret-name", owner="alice", gpus=(uuid(0),))
    mine, theirs = (tiles(browser.get(path).text)[uuid(0)] for browser in (alice, bob))
    assert "You since Nov 24, 2026" in said(mine) and "alice since Nov 24, 2026" in said(theirs)
    assert not may_be_ticked(mine) and not may_be_ticked(theirs)
    assert "secret-name" not in bob.get(path).text


@pytest.mark.parametrize("path", PAGES)
def test_what_is_not_offered_says_why_and_what_to_do(path: str, alice: Browser, store: Store, cast: Cast) -> None:
    outside = card(1)
    saw(store, cast.host, lost(0), outside, divided(2), without_uuid(3), unified(4), others=busy(outside))
    text = alice.get(path).text
    shown, plain = tiles(text), said(text)
    assert "Lost since" in said(shown[uuid(0)]) and "is no longer listed by the driver" in plain
    assert "Not ours" in said(shown[uuid(1)]) and "in use by python (pid 20931), which is none of Berth's" in plain
    assert "In MIG slices" in said(shown[uuid(2)]) and "Choose one of its slices" in plain
    assert "Not offered" in said(shown["?3"]) and "<input" not in shown["?3"] and "has no UUID" in plain
    assert not any(may_be_ticked(shown[key]) for key in (uuid(0), uuid(1), uuid(2), "?3"))
    for number, profile, memory in ((20, "3g.40gb", "40 GiB"), (21, "1g.10gb", "10 GiB")):
        assert said(shown[mig_uuid(number)]) == f"GPU 2 {A100} MIG {profile} {memory} Free"
    assert said(shown[uuid(4)]) == "GPU 4 NVIDIA GB10 memory shared with the host Free"
    assert "3 of 5 free" in plain


def test_reason_of_a_card_belongs_to_its_box(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0), lost(1))
    text = alice.get("/launch").text
    described = re.search(r'aria-describedby="(why-[\d-]+)"', tiles(text)[uuid(1)])
    assert described and re.search(rf'id="{described[1]}">.*?GPU 1 ', text, re.S)


@pytest.mark.parametrize("path", PAGES)
def test_memory_that_nobody_reported_is_a_dash_and_never_zero(path: str, alice: Browser, store: Store,
                                                              cast: Cast) -> None:
    saw(store, cast.host, card(0, memory_total_bytes=None))
    tile = said(tiles(alice.get(path).text)[uuid(0)])
    assert tile == f"GPU 0 {A100} — Free"


@pytest.mark.parametrize("path", PAGES)
def test_simulated_cards_are_called_so(path: str, alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0), card(1), simulated=True)
    assert all("simulated" in said(tile) for tile in tiles(alice.get(path).text).values())
    saw(store, cast.host, card(0), card(1))
    assert "simulated" not in alice.get(path).text


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("code", "sentence"), [
    ("smi_missing", "atlas has no nvidia-smi"),
    ("driver_not_loaded", "atlas has no NVIDIA driver running"),
    ("driver_library_version_mismatch", "was upgraded while the old one was running"),
    ("code_of_a_newer_agent", "code_of_a_newer_agent"),
])
def test_trouble_of_a_driver_is_said_where_its_cards_would_be(code: str, sentence: str, path: str, alice: Browser,
                                                              store: Store, cast: Cast) -> None:
    saw(store, cast.host, trouble=InventoryTrouble(code, {"host": "atlas"}))
    assert sentence in alice.get(path).text


def test_trouble_is_said_once_and_not_by_each_card(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0), card(1))
    saw(store, cast.host, trouble=InventoryTrouble("smi_hangs", {"host": "atlas", "seconds": 10}))
    text = alice.get("/launch").text
    assert text.count("does not answer within 10 seconds") == 1
    assert all("Unknown" in said(tile) and not may_be_ticked(tile) for tile in tiles(text).values())


def test_host_without_a_card_says_so_and_so_does_one_not_looked_at(alice: Browser, store: Store, cast: Cast) -> None:
    assert "Nobody has looked yet" in alice.get("/launch").text
    saw(store, cast.host)
    assert "This host has no GPU." in alice.get("/launch").text


def test_cards_of_a_silent_host_are_not_offered(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0))
    with store.write() as db:
        db.get_one(Host, cast.host).unreachable_since = NOON
    text = alice.get("/launch").text
    assert "atlas does not answer since" in text and "No answer" in said(tiles(text)[uuid(0)])
    assert not may_be_ticked(tiles(text)[uuid(0)])


def test_image_that_no_driver_of_a_host_can_run_says_so_beforehand(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0), driver="470.57.02")
    assert "CUDA 12.8, which needs NVIDIA driver 525.60 or newer; this host has 470.57.02" in alice.get("/launch").text
    assert way(alice.get("/launch").text) == "none"      # nobody is given a default that is refused


def test_names_of_cards_never_become_markup(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0, '"><img src=x onerror=alert(1)>'))
    assert "<img" not in alice.get("/launch").text


# -- what may be asked for


def test_default_is_one_card_when_one_is_free_and_none_else(alice: Browser, store: Store, cast: Cast,
                                                            launch: Launch) -> None:
    assert way(alice.get("/launch").text) == "none"
    saw(store, cast.host, card(0))
    text = alice.get("/launch").text
    assert way(text) == "any" and re.search(r'name="gpu_count"[^>]*value="1"', text)
    launch("bobs", owner="bob", gpus=(uuid(0),))
    assert way(alice.get("/launch").text) == "none"


def test_any_number_is_claimed(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, *(card(n) for n in range(4)))
    assert alice.post("/launch", launch_form(cast, gpu_way="any", gpu_count="2")).status_code == 303
    wanted, held = cards_of(store, made(store)[0].id)
    assert len(held) == 2 and held == wanted


def test_any_number_of_one_model(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0), card(1, H100))
    assert f'<option value="{H100}">' in alice.get("/launch").text
    alice.post("/launch", launch_form(cast, gpu_way="any", gpu_count="1", gpu_model=H100))
    assert cards_of(store, made(store)[0].id)[1] == [uuid(1)]


def test_one_model_alone_is_no_choice(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0), divided(1))
    assert 'name="gpu_model"' in alice.get("/launch").text     # slices are a model of their own
    saw(store, cast.host, card(0), card(1))
    assert 'name="gpu_model"' not in alice.get("/launch").text


def test_these_very_cards_are_claimed(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, *(card(n) for n in range(4)))
    typed = launch_form(cast, gpu_way="these", gpu_count="1") | {"gpu": [uuid(1), uuid(3)]}
    assert alice.post("/launch", typed).status_code == 303
    assert cards_of(store, made(store)[0].id)[1] == [uuid(1), uuid(3)]


def test_none_is_none_whatever_the_count_says(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0))
    assert alice.post("/launch", launch_form(cast, gpu_way="none", gpu_count="4")).status_code == 303
    assert claims(store) == 0


@pytest.mark.parametrize(("fields", "sentence"), [
    ({"gpu_way": ""}, "Choose whether it gets GPUs"),
    ({"gpu_way": "all"}, "Choose whether it gets GPUs"),
    ({"gpu_way": "these"}, "Tick the cards"),
    ({"gpu_way": "none", "gpu": uuid(0)}, "You ticked cards, but not"),
    ({"gpu_way": "any", "gpu_count": "1", "gpu": uuid(0)}, "You ticked cards, but not"),
    ({"gpu_way": "any", "gpu_count": ""}, "Enter how many GPUs"),
    ({"gpu_way": "any", "gpu_count": "00"}, "Enter how many GPUs"),
    ({"gpu_way": "any", "gpu_count": "two"}, "is no number of GPUs"),
    ({"gpu_way": "any", "gpu_count": "-1"}, "is no number of GPUs"),
    ({"gpu_way": "any", "gpu_count": "９"}, "is no number of GPUs"),
    ({"gpu_way": "any", "gpu_count": "999"}, "is no number of GPUs"),
    ({"gpu_way": "these", "gpu": uuid(77)}, "There is no GPU"),
    ({"gpu_way": "these", "gpu": "x" * 5000}, "There is no GPU"),
    ({"gpu_way": "these", "gpu": "a\x00b"}, "There is no GPU"),
    ({"gpu_way": "any", "gpu_count": "1", "gpu_take": ""}, "There is no GPU"),
])
def test_wish_that_cannot_be_read_is_refused_beside_the_cards(fields: dict[str, str], sentence: str, alice: Browser,
                                                              store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0))
    answer = alice.post("/launch", launch_form(cast, name="Bad Name") | fields)
    assert answer.status_code == 422 and sentence in wrong(answer.text, "gpus")
    assert "cannot be a workspace name" in wrong(answer.text, "name")       # everything is told at once
    assert made(store) == []


def test_model_that_nobody_has_stands_beside_its_field(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0))
    answer = alice.post("/launch", launch_form(cast, gpu_way="any", gpu_count="1", gpu_model="Voodoo 2"))
    assert answer.status_code == 422 and "No host has a GPU of the model Voodoo 2" in wrong(answer.text, "gpu_model")


def test_driver_too_old_stands_beside_the_image_and_names_both(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0), driver="470.57.02")
    answer = alice.post("/launch", launch_form(cast, gpu_way="any", gpu_count="1"))
    assert answer.status_code == 422
    assert "CUDA 12.8, which needs NVIDIA driver 525.60 or newer; this host has 470.57.02" in wrong(
        answer.text, "image_id")
    assert way(answer.text) == "any" and made(store) == []


def test_cards_of_two_hosts_are_refused_and_stay_ticked(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0))
    saw(store, add_host(store, "borealis"), card(100))
    answer = alice.post("/launch", launch_form(cast, gpu_way="these") | {"gpu": [uuid(0), uuid(100)]})
    assert answer.status_code == 422 and "different hosts" in wrong(answer.text, "gpus")
    assert way(answer.text) == "these" and all(map(is_ticked, tiles(answer.text).values()))


def test_what_was_chosen_stays_when_something_else_is_wrong(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, card(0), card(1, H100), card(2))
    typed = launch_form(cast, name="Bad Name", gpu_way="any", gpu_count="2", gpu_model=H100)
    text = alice.post("/launch", typed).text
    assert way(text) == "any" and re.search(r'name="gpu_count"[^>]*value="2"', text)
    assert f'<option value="{H100}" selected>' in text
    typed = launch_form(cast, name="Bad Name", gpu_way="these") | {"gpu": [uuid(0), uuid(2)]}
    assert [is_ticked(tile) for tile in tiles(alice.post("/launch", typed).text).values()] == [True, False, True]


# -- lost the race, or not enough


def test_card_lost_to_somebody_else_keeps_the_form_and_says_who_is_in_the_way(
    alice: Browser, store: Store, cast: Cast, launch: Launch,
) -> None:
    saw(store, cast.host, *(card(n) for n in range(4)))
    launch("bobs", owner="bob", gpus=(uuid(0),))
    typed = launch_form(cast, name="mine", cpus="3", ssh_key="", gpu_way="these") | {"gpu": [uuid(0), uuid(1)]}
    answer = alice.post("/launch", typed)
    assert answer.status_code == 409
    shown = tiles(answer.text)
    assert "Not all of the cards you chose are free now." in answer.text
    assert f"GPU 0 ({A100}) is taken: a workspace holds it." in answer.text
    assert 'value="mine"' in answer.text and re.search(r'name="cpus"[^>]*value="3"', answer.text)
    assert way(answer.text) == "these" and is_ticked(shown[uuid(0)]) and is_ticked(shown[uuid(1)])
    assert " disabled" not in shown[uuid(0)] and "taken just now" in shown[uuid(0)]
    assert len(made(store)) == 1


def offers(text: str) -> list[tuple[str, list[str]]]:
    found = re.findall(r'name="gpu_take" value="([^"]*)"[^>]*>([^<]+)</button>', text)
    return [(word, uuids.split(",")) for uuids, word in found]


def test_offer_is_a_button_that_sends_the_same_form(alice: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    saw(store, cast.host, *(card(n) for n in range(4)))
    launch("bobs", owner="bob", gpus=(uuid(0),))
    typed = launch_form(cast, name="mine", gpu_way="these") | {"gpu": [uuid(0), uuid(1)]}
    found = offers(alice.post("/launch", typed).text)
    assert [word for word, _ in found] == ["Launch on these", "Launch with fewer"]
    (_, others), (_, fewer) = found
    assert uuid(0) not in others and len(others) == 2 and fewer == [uuid(1)]
    assert alice.post("/launch", typed | {"gpu_take": ",".join(others)}).status_code == 303
    mine = next(row for row in made(store) if row.name == "mine")
    assert cards_of(store, mine.id)[1] == sorted(others)


def test_offer_that_is_lost_too_comes_back_with_its_cards_ticked(alice: Browser, store: Store, cast: Cast,
                                                                 launch: Launch) -> None:
    saw(store, cast.host, *(card(n) for n in range(3)))
    launch("bobs", owner="bob", gpus=(uuid(0), uuid(1)))
    typed = launch_form(cast, gpu_way="any", gpu_count="2", gpu_take=f"{uuid(1)},{uuid(2)}")
    answer = alice.post("/launch", typed)
    assert answer.status_code == 409 and way(answer.text) == "these"
    assert [is_ticked(tile) for tile in tiles(answer.text).values()] == [False, True, True]
    assert offers(answer.text) == [("Launch with fewer", [uuid(2)])]


def test_too_many_wanted_says_why_of_each_card(alice: Browser, store: Store, cast: Cast, launch: Launch) -> None:
    saw(store, cast.host, card(0), lost(1), card(2), card(3))
    launch("bobs", owner="bob", gpus=(uuid(0),))
    answer = alice.post("/launch", launch_form(cast, gpu_way="any", gpu_count="3"))
    assert answer.status_code == 409 and "3 wanted, at most 2 to be had on one host" in answer.text
    part = answer.text.partition('id="no-capacity"')[2].partition("</section>")[0]
    assert all(f"GPU {n} (" in part for n in range(4)) and "only 2 are free together" in part
    assert offers(answer.text) == [("Launch with fewer", [uuid(2), uuid(3)])]
    assert way(answer.text) == "any" and re.search(r'name="gpu_count"[^>]*value="3"', answer.text)


def test_nothing_free_offers_nothing_and_says_what_to_do(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, lost(0))
    answer = alice.post("/launch", launch_form(cast, gpu_way="any", gpu_count="1"))
    assert answer.status_code == 409 and offers(answer.text) == [] and "No GPU is free." in answer.text


def test_poll_never_ticks_and_asks_little(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, *(card(n) for n in range(4)))
    text = alice.get("/poll/launch/gpus").text
    assert "checked" not in text and 'data-live="/poll/launch/gpus"' in text


def test_refusals_are_said_in_the_readers_language(alice: Browser, store: Store, cast: Cast) -> None:
    saw(store, cast.host, lost(0))
    alice.client.set_cookie("berth_language", "zh_Hans_CN", domain="localhost")
    answer = alice.post("/launch", launch_form(cast, gpu_way="any", gpu_count="1"))
    assert answer.status_code == 409 and "所需的 GPU 目前不空闲" in answer.text and "掉卡" in answer.text


def test_image_without_cuda_may_have_cards(alice: Browser, store: Store, cast: Cast) -> None:
    """Whoever knows why takes one; nothing inside needs CUDA to be in the image."""
    saw(store, cast.host, card(0))
    with store.write() as db:
        db.get_one(Image, cast.slim).has_jupyter = True
    assert alice.post("/launch", launch_form(cast, image_id=cast.slim, gpu_way="any", gpu_count="1")).status_code == 303
    assert claims(store) == 1
