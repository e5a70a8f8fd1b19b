"""The driver rule, and that what is not known is never called right."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.domain.cuda import WORDINGS, Compatibility, judge, parse_version, refusal
from webapp.errors import fill

OK, MINOR, OLD, UNKNOWN = Compatibility


@pytest.mark.parametrize(("cuda", "driver", "verdict"), [
    ("11.8", "520.61.05", OK), ("11.8", "520.60", MINOR), ("11.8", "450.80.02", MINOR), ("11.8", "450.79", OLD),
    ("11.8.0", "580.105.08", OK), ("11.0", "450.80.02", OK), ("11", "460.32.03", OK), ("11.4", "418.87.01", OLD),
    ("12.0", "525.60.13", OK), ("12.9", "525.60", OK), ("12.8", "525.59.99", OLD), ("12.1", "520.61.05", OLD),
    ("12.8.1", "610.62", OK), ("12", "1000.5", OK),
    ("13.0", "580.65.06", OK), ("13.0", "580.64.99", OLD), ("13.1", "575.51.03", OLD), ("13.0", "595.71.05", OK),
    ("10.2", "450.80", OK), ("10.2", "440.33.01", UNKNOWN), ("8.0", "352.99", UNKNOWN),
    ("14.0", "610.62", UNKNOWN), ("14.0", "1.2", UNKNOWN),
    (None, "580.65.06", UNKNOWN), ("12.8", None, UNKNOWN), ("Not Found", "430.26", UNKNOWN), ("12.8", "N/A", UNKNOWN),
    ("12.8", "580", UNKNOWN), ("", "", UNKNOWN), ("12.8", "-580.65", UNKNOWN), ("12.x", "580.65", UNKNOWN),
    ("12.8", "580.65.06\n; reboot", UNKNOWN), ("٣.1", "580.65", UNKNOWN), ("9" * 5000, "580.65", UNKNOWN),
])
def test_driver_rule(cuda: str | None, driver: str | None, verdict: Compatibility) -> None:
    judged = judge(cuda, driver)
    assert judged.compatibility is verdict
    assert (refusal(cuda, driver) is not None) == (verdict is OLD)
    assert (judged.reason is None) == (verdict is OK)


def test_refusal_names_both_versions_and_the_one_that_would_do() -> None:
    reason = refusal("12.8", "470.239.06")
    assert reason is not None
    sentence = fill(WORDINGS[reason.code].title, reason.facts)
    assert "12.8" in sentence and "470.239.06" in sentence and "525.60" in sentence


def test_every_verdict_but_ok_has_a_sentence() -> None:
    for cuda, driver in (("12.8", "470.1"), ("11.8", "470.1"), ("14.0", "470.1"), (None, None)):
        reason = judge(cuda, driver).reason
        assert reason is not None
        assert fill(WORDINGS[reason.code].title, reason.facts) and WORDINGS[reason.code].next


def test_versions_are_compared_as_numbers() -> None:
    assert parse_version("418.87.01") == (418, 87, 1) < (418, 100)      # type: ignore[operator]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
def test_no_text_raises(cuda: str, driver: str) -> None:
    judge(cuda, driver)


@settings(max_examples=100, deadline=None)
@given(st.tuples(*[st.integers(11, 13), st.integers(0, 9)]), st.lists(st.integers(0, 999), min_size=2, max_size=3))
def test_newer_driver_never_runs_less(cuda: tuple[int, int], driver: list[int]) -> None:
    image = ".".join(map(str, cuda))
    before = judge(image, ".".join(map(str, driver))).compatibility
    after = judge(image, f"{driver[0] + 1}.0").compatibility
    assert [OLD, MINOR, OK].index(before) <= [OLD, MINOR, OK].index(after)
