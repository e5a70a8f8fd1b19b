"""The agent asks for the quota again before it makes a container: it may have been lowered since."""

from __future__ import annotations

from agent.stage import Stage
from webapp.domain.quota import Quota
from webapp.domain.workspace import Phase
from webapp.services import quotas
from webapp.store.tables import HOUSE


def test_launch_under_a_quota_that_was_lowered_fails_and_says_so(stage: Stage) -> None:
    workspace = stage.launch()
    stage.do(quotas.set_quota, stage.cast.carol, HOUSE, Quota(memory_bytes=1), version=0)
    stage.settle()
    row = stage.row(workspace)
    assert row.phase == Phase.FAILED and "quota" in (stage.said(workspace) or "") and stage.containers() == []
    stage.do(quotas.set_quota, stage.cast.carol, HOUSE, Quota(), version=1)
    stage.start(workspace)
    stage.settle()
    assert stage.row(workspace).phase == Phase.RUNNING


def test_what_runs_goes_on_and_comes_back_after_a_restart(stage: Stage) -> None:
    workspace = stage.running()
    stage.do(quotas.set_quota, stage.cast.carol, HOUSE, Quota(memory_bytes=1), version=0)
    stage.live(30)
    assert stage.row(workspace).phase == Phase.RUNNING
    stage.engine.restart_engine()
    stage.live(60)
    assert stage.row(workspace).phase == Phase.RUNNING
