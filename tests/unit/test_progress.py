"""The steps that a page shows while a workspace comes up."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from webapp.domain import progress
from webapp.domain.container import PullProgress
from webapp.domain.workspace import StepName

NOW = datetime(2026, 11, 3, 9, 0, tzinfo=UTC)
LATER = NOW + timedelta(seconds=7)


def states(steps: dict[str, Any]) -> list[str]:
    return [step["state"] for step in steps["steps"]]


def step(steps: dict[str, Any], name: StepName) -> dict[str, Any]:
    return next(step for step in steps["steps"] if step["name"] == name)


def test_fresh_has_all_steps_waiting_in_order() -> None:
    fresh = progress.fresh(with_jupyter=True)
    assert [one["name"] for one in fresh["steps"]] == ["image", "created", "ssh", "jupyter", "ready"]
    assert states(fresh) == ["waiting"] * 5


def test_image_without_jupyter_skips_that_step_for_good() -> None:
    steps = progress.fresh(with_jupyter=False)
    for change in (progress.begin, progress.finish):
        steps = change(steps, StepName.JUPYTER, NOW)
    assert step(steps, StepName.JUPYTER)["state"] == "skipped"


def test_step_has_its_times() -> None:
    begun = progress.begin(progress.fresh(with_jupyter=True), StepName.IMAGE, NOW)
    image = step(progress.finish(begun, StepName.IMAGE, LATER), StepName.IMAGE)
    assert (image["state"], image["started_at"], image["ended_at"]) == ("done", NOW.isoformat(), LATER.isoformat())


def test_beginning_or_ending_twice_changes_nothing() -> None:
    once = progress.begin(progress.fresh(with_jupyter=True), StepName.SSH, NOW)
    assert progress.begin(once, StepName.SSH, LATER) == once
    done = progress.finish(once, StepName.SSH, NOW)
    assert progress.finish(done, StepName.SSH, LATER) == done
    assert progress.begin(done, StepName.SSH, LATER) == done


def test_step_that_ends_without_having_begun_took_no_time() -> None:
    image = step(progress.finish(progress.fresh(with_jupyter=True), StepName.IMAGE, NOW), StepName.IMAGE)
    assert image["started_at"] == image["ended_at"] == NOW.isoformat()


def test_pull_shows_bytes_and_percent_until_it_is_done() -> None:
    steps = progress.pulling(progress.fresh(with_jupyter=True), PullProgress(30, 120))
    image = step(steps, StepName.IMAGE)
    assert (image["done_bytes"], image["total_bytes"], image["percent"]) == (30, 120, 25)
    assert step(progress.finish(steps, StepName.IMAGE, NOW), StepName.IMAGE)["percent"] is None


def test_total_that_the_registry_has_not_said_is_none_not_zero() -> None:
    image = step(progress.pulling(progress.fresh(with_jupyter=True), PullProgress(30, None)), StepName.IMAGE)
    assert (image["percent"], image["total_bytes"]) == (None, None)


def test_failure_marks_what_ran_and_leaves_what_waited() -> None:
    steps = progress.finish(progress.fresh(with_jupyter=True), StepName.IMAGE, NOW)
    failed = progress.fail(progress.begin(steps, StepName.CREATED, NOW), LATER)
    assert states(failed) == ["done", "failed", "waiting", "waiting", "waiting"]
    assert step(failed, StepName.CREATED)["ended_at"] == LATER.isoformat()


def test_complete_ends_all_but_what_failed_or_was_skipped() -> None:
    steps = progress.fail(progress.begin(progress.fresh(with_jupyter=True), StepName.JUPYTER, NOW), NOW)
    steps = progress.begin(steps, StepName.CREATED, NOW)
    assert states(progress.complete(steps, LATER)) == ["done", "done", "done", "failed", "done"]
    assert states(progress.complete(progress.fresh(with_jupyter=False), LATER))[3] == "skipped"


def test_changes_leave_the_old_value_alone() -> None:
    fresh = progress.fresh(with_jupyter=True)
    before = json.dumps(fresh)
    progress.begin(fresh, StepName.IMAGE, NOW)
    progress.fail(fresh, NOW)
    progress.complete(fresh, NOW)
    assert json.dumps(fresh) == before


def test_row_without_steps_is_borne() -> None:
    assert progress.fail({}, NOW) == progress.begin({}, StepName.SSH, NOW) == {"steps": []}
    assert progress.complete({}, NOW) == {}
