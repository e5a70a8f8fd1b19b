"""The steps that a page shows while a workspace comes up. Pure functions over the JSON that the row keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from webapp.domain.container import PullProgress
from webapp.domain.workspace import StepName

Progress = dict[str, Any]
Step = dict[str, Any]


def fresh(*, with_jupyter: bool, with_gpus: bool = False, moves: bool = False) -> Progress:
    """All steps waiting; an image without Jupyter skips that one, and a workspace without cards has no look at them.

    One that `moves` has what is in it kept, and no image to be had.
    """
    skipped = () if with_jupyter else (StepName.JUPYTER,)
    left_out = {StepName.IMAGE if moves else StepName.KEPT} | (set() if with_gpus else {StepName.GPUS})
    return {"steps": [_step(name, "skipped" if name in skipped else "waiting")
                      for name in StepName if name not in left_out]}


def begin(progress: Mapping[str, Any], name: StepName, now: datetime) -> Progress:
    """`name` runs; a second call changes nothing."""
    return _change(progress, name, lambda step: step if step["state"] in ("running", "done", "skipped")
                   else {**step, "state": "running", "started_at": now.isoformat()})


def finish(progress: Mapping[str, Any], name: StepName, now: datetime) -> Progress:
    return _change(progress, name, lambda step: step if step["state"] in ("done", "skipped") else {
        **step, "state": "done", "started_at": step["started_at"] or now.isoformat(), "ended_at": now.isoformat(),
        "percent": None,
    })


def pulling(progress: Mapping[str, Any], pulled: PullProgress) -> Progress:
    return _change(progress, StepName.IMAGE, lambda step: {
        **step, "percent": pulled.percent, "done_bytes": pulled.done_bytes, "total_bytes": pulled.total_bytes,
    })


def fail(progress: Mapping[str, Any], now: datetime) -> Progress:
    """What was running has failed; what waited keeps waiting."""
    return {"steps": [
        {**step, "state": "failed", "ended_at": now.isoformat()} if step["state"] == "running" else step
        for step in progress.get("steps", [])
    ]}


def complete(progress: Mapping[str, Any], now: datetime) -> Progress:
    """It is up. What an agent did and could not write down any more is done too; what failed has failed."""
    done = progress
    for step in progress.get("steps", []):
        if step["state"] in ("waiting", "running"):
            done = finish(done, StepName(step["name"]), now)
    return dict(done)


def _step(name: str, state: str) -> Step:
    return {"name": str(name), "state": state, "started_at": None, "ended_at": None,
            "percent": None, "done_bytes": None, "total_bytes": None}


def _change(progress: Mapping[str, Any], name: StepName, change: Callable[[Step], Step]) -> Progress:
    return {"steps": [change(step) if step["name"] == name else step for step in progress.get("steps", [])]}
