"""Sizes and CPU counts: what is read, what is refused, and that both ways agree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.domain.sizes import (
    GIB,
    MIB,
    MOST_BYTES,
    TIB,
    format_cpus,
    format_size,
    parse_cpus,
    parse_size,
    show_size,
)
from webapp.errors import InvalidInput

quick = settings(max_examples=60, deadline=None)
any_text = st.text(st.characters(), max_size=40)  # lone surrogates too: JSON can carry them


def size(text: str, minimum: int = MIB, maximum: int | None = None) -> int:
    return parse_size(text, field="memory", minimum=minimum, maximum=maximum)


def cpus(text: str, maximum: int = 64_000) -> int:
    return parse_cpus(text, field="cpus", maximum=maximum)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("1MiB", MIB),
        ("8GiB", 8 * GIB),
        ("8 GiB", 8 * GIB),
        ("1536MiB", 1536 * MIB),
        ("2TiB", 2 * TIB),
        ("999999999999MiB", MOST_BYTES),
    ],
)
def test_size_is_read_in_bytes(text: str, n_bytes: int) -> None:
    assert size(text) == n_bytes


@pytest.mark.parametrize(
    "text",
    [
        *("0.5", "2.5G", "8g", "8Gi", "8GB", "8gib", "8GIB", "8T", "512", "-1", "0", "", "0GiB", "-8GiB", "+8GiB"),
        *("08GiB", "8  GiB", " 8GiB", "8GiB ", "8GiB\n", "8\nGiB", "8\tGiB", "8\N{NO-BREAK SPACE}GiB", "8GiB\0"),
        *("8_0GiB", "1e3MiB", "8.0GiB", "0x8GiB", "8KiB", "8PiB", "GiB", "1000000000000MiB", "8GiB 8GiB"),
        *("\N{FULLWIDTH DIGIT EIGHT}GiB", "８ＧｉＢ", "8ＧiB", "٨GiB", "$(id)GiB", "8GiB; reboot"),
    ],
)
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        size(text)
    (problem,) = caught.value.problems
    assert problem.field == "memory"
    assert "for example 8GiB" in str(problem)


def test_refused_size_is_echoed_without_its_control_characters() -> None:
    with pytest.raises(InvalidInput) as caught:
        size("8\x1b[31mGiB\n" + "x" * 500)
    assert "“8\\u001b[31mGiB\\u000axxx" in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("text", "minimum", "maximum", "words"),
    [
        ("5MiB", 6 * MIB, None, "5MiB is too little. The least is 6 MiB."),
        ("5MiB", 6 * MIB - 1, None, "5MiB is too little. The least is 6 MiB."),
        ("9 GiB", MIB, 8 * GIB, "9 GiB is too much. The most is 8 GiB."),
        ("9GiB", MIB, 8 * GIB + 5 * MIB + 7, "9GiB is too much. The most is 8197 MiB."),
        ("1MiB", MIB, 0, "1MiB is too much. The most is 0 MiB."),
        ("999999999999TiB", MIB, None, "999999999999TiB is too much. The most is 999999999999 MiB."),
        ("999999999999TiB", MIB, 2**80, "999999999999TiB is too much. The most is 999999999999 MiB."),
    ],
)
def test_size_outside_its_limits_names_a_limit_that_can_be_typed(
    text: str, minimum: int, maximum: int | None, words: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        size(text, minimum, maximum)
    assert str(caught.value) == f"memory: {words}"


def test_both_limits_are_allowed() -> None:
    assert size("6MiB", 6 * MIB, 6 * MIB) == 6 * MIB


@quick
@given(st.integers(1, MOST_BYTES // MIB) | st.integers(1, 10**5).map(lambda n: n * 1024))
def test_written_size_is_read_back_the_same(n_mib: int) -> None:
    assert size(format_size(n_mib * MIB)) == n_mib * MIB


@pytest.mark.parametrize("n_bytes", [0, -MIB, 1, MIB + 1, MOST_BYTES + MIB])
def test_a_size_without_exact_writing_is_not_written(n_bytes: int) -> None:
    with pytest.raises(ValueError, match="not a whole number of MiB"):
        format_size(n_bytes)


@pytest.mark.parametrize(
    ("n_bytes", "shown"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (8 * GIB, "8 GiB"),
        (1536 * MIB, "1.5 GiB"),
        (81_559 * MIB, "79.6 GiB"),
        (GIB - 1, "1 GiB"),
        (3000 * TIB, "3000 TiB"),
    ],
)
def test_size_for_people_has_a_space_and_at_most_one_decimal(n_bytes: int, shown: str) -> None:
    assert show_size(n_bytes) == shown


def test_negative_size_is_not_shown() -> None:
    with pytest.raises(ValueError, match="never negative"):
        show_size(-1)


@pytest.mark.parametrize(
    ("text", "cpu_millis"),
    [("1", 1000), ("0.5", 500), ("2.25", 2250), ("0.1", 100), ("0.10", 100), ("64", 64_000), ("1.00", 1000)],
)
def test_cpus_are_read_in_thousandths(text: str, cpu_millis: int) -> None:
    assert cpus(text) == cpu_millis


@pytest.mark.parametrize(
    "text",
    [
        *("", "-1", "+1", ".5", "1.", "1,5", "1.234", "01", "1e1", "0x1", "1 ", "1\n", "1\0", "inf", "nan", "500m"),
        *("\N{FULLWIDTH DIGIT ONE}", "1.\N{FULLWIDTH DIGIT FIVE}", "100000"),
    ],
)
def test_anything_else_is_no_number_of_cpus(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        cpus(text)
    assert str(caught.value).startswith("cpus: ")
    assert "for example 2 or 0.5" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0", "0 CPUs are too few. The least is 0.1."),
        ("0.09", "0.09 CPUs are too few. The least is 0.1."),
        ("4.01", "4.01 CPUs are too many. The most is 4."),
    ],
)
def test_cpus_outside_their_limits_name_the_limit(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        cpus(text, maximum=4000)
    assert str(caught.value) == f"cpus: {words}"


@quick
@given(st.integers(10, 9_999_999).map(lambda n: n * 10))
def test_written_cpus_are_read_back_the_same(cpu_millis: int) -> None:
    assert cpus(format_cpus(cpu_millis), maximum=10**9) == cpu_millis


def test_negative_cpus_are_not_written() -> None:
    with pytest.raises(ValueError, match="never negative"):
        format_cpus(-1)


@quick
@given(any_text)
def test_no_text_breaks_the_parsers(text: str) -> None:
    for parse in (size, cpus):
        try:
            parse(text)
        except InvalidInput as refused:
            str(refused).encode()
