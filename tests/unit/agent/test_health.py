"""Running workspaces, looked after."""

from __future__ import annotations

import pytest

from agent.stage import Stage
from webapp.agent.health import EVERY_SECONDS
from webapp.domain.workspace import Health, Phase, Service
from webapp.store.tables import Workspace


@pytest.fixture
def workspace(stage: Stage) -> Workspace:
    running = stage.running()
    look(stage)
    return running


def look(stage: Stage) -> None:
    """The next look is due, and made."""
    stage.clock.sleep(EVERY_SECONDS + 1)
    stage.loop.one_pass()


def health(stage: Stage, workspace: Workspace) -> Health:
    assert stage.row(workspace).phase == Phase.RUNNING
    return Health(stage.row(workspace).health)


def test_one_silent_look_is_only_slow(stage: Stage, workspace: Workspace) -> None:
    stage.silent = {Service.SSH}
    look(stage)
    assert health(stage, workspace) is Health.OK
    stage.silent = set()
    look(stage)
    stage.silent = {Service.SSH}
    look(stage)
    assert health(stage, workspace) is Health.OK, "two misses that are not in a row"


@pytest.mark.parametrize("service", list(Service))
def test_two_in_a_row_are_degraded_and_say_which_service(stage: Stage, workspace: Workspace, service: Service) -> None:
    stage.silent = {service}
    look(stage)
    look(stage)
    assert health(stage, workspace) is Health.DEGRADED
    assert str(stage.said(workspace)).startswith(f"{service} does not answer since")


def test_it_is_well_again_at_the_first_answer(stage: Stage, workspace: Workspace) -> None:
    stage.silent = {Service.JUPYTER}
    look(stage)
    look(stage)
    stage.silent = set()
    look(stage)
    assert (health(stage, workspace), stage.row(workspace).reason) == (Health.OK, None)


def test_new_agent_does_not_call_it_well_after_one_silent_look(stage: Stage, workspace: Workspace) -> None:
    stage.silent = {Service.JUPYTER}
    look(stage)
    look(stage)
    stage.take_over()
    look(stage)
    assert health(stage, workspace) is Health.DEGRADED


def test_since_is_kept_while_it_stays_silent(stage: Stage, workspace: Workspace) -> None:
    stage.silent = {Service.SSH}
    look(stage)
    look(stage)
    said = stage.said(workspace)
    look(stage)
    assert stage.said(workspace) == said


def test_paused_by_hand_is_degraded_and_runs_on(stage: Stage, workspace: Workspace) -> None:
    stage.machine.containers[stage.name(workspace)].state = stage.containers()[0].state.PAUSED
    stage.forget_calls()
    look(stage)
    look(stage)
    assert (health(stage, workspace), stage.deeds()) == (Health.DEGRADED, [])


def test_steady_workspace_costs_no_write(stage: Stage, workspace: Workspace) -> None:
    before = {key: value for key, value in vars(stage.row(workspace)).items() if key[0] != "_"}
    look(stage)
    look(stage)
    assert {key: value for key, value in vars(stage.row(workspace)).items() if key[0] != "_"} == before


def test_what_was_stopped_meanwhile_gets_no_health(stage: Stage, workspace: Workspace) -> None:
    stage.silent = {Service.SSH}
    look(stage)
    probe = stage._answers

    def stop_meanwhile(*arguments: object) -> bool:
        stage.stop(workspace)
        return False

    object.__setattr__(stage.context, "probe", stop_meanwhile)
    look(stage)
    object.__setattr__(stage.context, "probe", probe)
    stage.settle()
    assert (stage.row(workspace).phase, stage.row(workspace).health) == (Phase.STOPPED, Health.UNKNOWN)
