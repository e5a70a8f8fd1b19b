"""Names: the grammars, what is reserved and why, the corrections, and names on an engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.domain.names import (
    engine_name,
    excerpt,
    parse_display_name,
    parse_instance_id,
    parse_team_name,
    parse_username,
    parse_workspace_name,
    skeleton,
    suggest_name,
)
from webapp.errors import InvalidInput

quick = settings(max_examples=60, deadline=None)
any_text = st.text(st.characters(), max_size=80)
HOSTILE = [
    "; id",
    "$(id)",
    "`id`",
    "a\nb",
    "a\n",
    "\na",
    "a\0",
    "NUL\0",
    "-x",
    "-oProxyCommand=id",
    "../a",
    "a/b",
    "a b",
]


def refusal(parse: Callable[[str], object], text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse(text)
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.parametrize("text", ["alice", "bo", "a1", "a-b_c", "x" * 31, "rooty", "dev", "systemd"])
def test_user_and_team_names(text: str) -> None:
    assert parse_username(text) == text
    assert parse_team_name(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *HOSTILE,
        "",
        "a",
        "_x",
        "-x",
        ".x",
        "1a",
        "a@b",
        "Alice",
        "a.b",
        "x" * 32,
        "größe",
        "爱丽丝",
        "\N{CYRILLIC SMALL LETTER A}lice",
    ],
)
def test_other_user_and_team_names_are_refused(text: str) -> None:
    assert "username: " in refusal(parse_username, text)
    assert "team: " in refusal(parse_team_name, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("root", "full rights"),
        ("admin", "full rights"),
        ("docker", "full rights"),
        ("daemon", "system account"),
        ("www-data", "system account"),
        ("messagebus", "system account"),
        ("systemd-network", "system account"),
        ("berth", "by Berth itself"),
        ("berth-agent", "by Berth itself"),
        ("jupyter", "by Berth itself"),
    ],
)
def test_reserved_names_are_refused_with_the_reason(text: str, why: str) -> None:
    assert why in refusal(parse_username, text)
    assert why in refusal(parse_team_name, text)


def test_apt_is_refused_by_the_grammar_already() -> None:
    assert "_apt" in refusal(parse_username, "_apt")


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [("Alice", "alice"), ("Alice Liddell", "alice-liddell"), ("José", "jose"), ("9lives", "lives"), ("a.b", "a-b")],
)
def test_a_user_name_that_is_nearly_right_gets_a_correction(text: str, suggestion: str) -> None:
    assert refusal(parse_username, text).endswith(f"Try {suggestion}.")


@pytest.mark.parametrize("text", ["Root", "_apt", "爱丽丝", "_sys"])
def test_no_correction_is_offered_that_would_be_refused(text: str) -> None:
    message = refusal(parse_username, text)
    assert "Try" not in message or parse_username(message.rpartition("Try ")[2].rstrip("."))


@pytest.mark.parametrize("text", ["a", "7", "my-run-2", "a--b", "x" * 40, "0-0"])
def test_workspace_names(text: str) -> None:
    assert parse_workspace_name(text) == text


@pytest.mark.parametrize(
    "text", [*HOSTILE, "", "-", "-a", "a-", "A", "a_b", "a.b", "x" * 41, "*", "?", "!a", "a,b", "跑"]
)
def test_other_workspace_names_are_refused(text: str) -> None:
    assert "name: " in refusal(parse_workspace_name, text)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [("My Run 2", "my-run-2"), ("-a-", "a"), ("run_1", "run-1"), ("Ｒｕｎ", "run"), ("x" * 39 + " y", "x" * 39)],
)
def test_a_workspace_name_that_is_nearly_right_gets_a_correction(text: str, suggestion: str) -> None:
    assert refusal(parse_workspace_name, text).endswith(f"Try {suggestion}.")


def test_a_workspace_may_not_take_over_localhost_in_the_ssh_config() -> None:
    assert "your own computer" in refusal(parse_workspace_name, "localhost")


@pytest.mark.parametrize(
    ("taken", "stem", "suggestion"),
    [
        ([], "workspace", "workspace"),
        (["workspace"], "workspace", "workspace-2"),
        (["workspace", "workspace-2", "workspace-4"], "workspace", "workspace-3"),
        (["run-2"], "run-2", "run-3"),
        (["x" * 40], "x" * 40, "x" * 38 + "-2"),
        ([], "My Run", "my-run"),
        ([], "", "workspace"),
        ([], "localhost", "workspace"),
        ([], "跑", "workspace"),
    ],
)
def test_suggested_name_is_the_next_free_one(taken: list[str], stem: str, suggestion: str) -> None:
    assert suggest_name(taken, stem) == suggestion


@quick
@given(any_text, st.integers(0, 12))
def test_suggested_name_parses_and_is_free(stem: str, n_taken: int) -> None:
    taken: list[str] = []
    for _ in range(n_taken + 1):
        name = suggest_name(taken, stem)
        assert parse_workspace_name(name) not in taken
        taken.append(name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Alice Liddell", "Alice Liddell"),
        ("  Alice   Liddell ", "Alice Liddell"),
        ("Jose\u0301", "José"),
        ("爱丽丝", "爱丽丝"),
        ("爱\u3000丽", "爱 丽"),
        ("O'Neil-Smith, Jr.", "O'Neil-Smith, Jr."),
        ("\U000323b0", "\U000323b0"),  # Han of Unicode 15, newer than Python 3.11's tables
        ("e" + "\u0301" + "x" * 59, "é" + "x" * 59),
    ],
)
def test_display_names_are_composed_and_trimmed(text: str, name: str) -> None:
    assert parse_display_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", "...", "x" * 61, "\u0301" * 100_000, "a\nb", "a\0b", "a\tb", "a\x1cb", "a\x7f", "a\x85b"),
        *("a\u202eb", "a\u2066b", "a\u200bb", "a\u200db", "\ufeffa", "a\u00adb", "a\u2028b", "\ud800", "a\ue000"),
        *("\u3164", "\u2800", "a\u115f", "a\ufe0f", "a\U000e0041"),
    ],
)
def test_invisible_or_empty_display_names_are_refused(text: str) -> None:
    assert "display_name: " in refusal(parse_display_name, text)


@pytest.mark.parametrize("text", ["lab1", "0000", "a" * 12])
def test_instance_ids(text: str) -> None:
    assert parse_instance_id(text) == text


@pytest.mark.parametrize(
    "text", [*HOSTILE, "", "lab", "a" * 13, "Lab1", "lab-1", "lab1\n", "lab\N{FULLWIDTH DIGIT ONE}"]
)
def test_other_instance_ids_are_refused(text: str) -> None:
    assert "for example lab1" in refusal(parse_instance_id, text)


def test_engine_name_is_made_of_ids() -> None:
    assert engine_name("lab1", "workspace", "7f3k") == "berth-lab1-workspace-7f3k"
    assert len(engine_name("a" * 12, "workspace", "f" * 32)) <= 63


@pytest.mark.parametrize(
    ("instance", "kind", "id_"),
    [
        ("lab", "ws", "1"),
        ("lab-1", "ws", "1"),
        ("lab1", "w-s", "1"),
        ("lab1", "", "1"),
        ("lab1", "ws", ""),
        ("lab1", "ws", "-1"),
        ("lab1", "ws", "a--b"),
        ("lab1", "ws", "A"),
        ("lab1", "ws", "a\n"),
        ("lab1", "ws", "../x"),
        ("lab1", "ws", "x" * 60),
    ],
)
def test_engine_name_refuses_other_parts(instance: str, kind: str, id_: str) -> None:
    with pytest.raises(ValueError, match="engine name"):
        engine_name(instance, kind, id_)


@quick
@given(st.tuples(*[st.from_regex(r"[a-z0-9]{1,3}(-[a-z0-9]{1,3})?", fullmatch=True)] * 2))
def test_two_ids_never_share_an_engine_name(ids: tuple[str, str]) -> None:
    first, second = (engine_name("lab1", "ws", id_) for id_ in ids)
    assert (first == second) == (ids[0] == ids[1])


def test_excerpt_is_short_and_visible() -> None:
    assert excerpt("a\n\u202e\ud800") == "a\\u000a\\u202e\\ud800"
    assert excerpt("x" * 61) == "x" * 60 + "…"


@quick
@given(any_text)
def test_no_text_breaks_the_parsers(text: str) -> None:
    for parse in (parse_username, parse_team_name, parse_workspace_name, parse_display_name, parse_instance_id):
        try:
            assert parse(parse(text)) == parse(text)
        except InvalidInput as refused:
            str(refused).encode()


@pytest.mark.parametrize(("one", "other"), [
    ("bob", "b0b"), ("alice", "a1ice"), ("tom", "torn"), ("anna-b", "anna_b"), ("annab", "anna-b"), ("wim", "vvim"),
])
def test_names_that_look_alike_have_one_skeleton(one: str, other: str) -> None:
    assert skeleton(one) == skeleton(other)


@pytest.mark.parametrize(("one", "other"), [("bob", "rob"), ("ann", "anna"), ("p1", "p2"), ("karl", "carl")])
def test_names_that_are_told_apart_have_two(one: str, other: str) -> None:
    assert skeleton(one) != skeleton(other)
