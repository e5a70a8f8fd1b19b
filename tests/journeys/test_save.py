"""What one of a team saves, another launches and works in as if it were their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faults.waiting import until
from faults.workspace import Workspace, now

from journeys.team import TeamHouse
from journeys.wheels import wheel
from webapp.domain.operation import OperationState
from webapp.domain.workspace import Phase
from webapp.services import images
from webapp.store.tables import Image, Operation

pytestmark = pytest.mark.docker


def saved(team: TeamHouse, workspace: Workspace) -> Image:
    with team.house.store.write() as session:
        operation = images.save(session, team.alice.actor, workspace.id, title="With our tools", team_id=team.team.id,
                                now=now())

    def done() -> Any:
        with team.house.store.read() as session:
            row = session.get_one(Operation, operation.id)
            assert row.state != OperationState.FAILED, (row.reason, team.house.how_it_is())
            return row.state == OperationState.DONE and session.get_one(Image, operation.image_id)

    image: Image = until(done, seconds=120, what=team.house.how_it_is)
    return image


def install(workspace: Workspace, name: str) -> None:
    file, content = wheel(name)
    workspace.ssh(f"cat > /tmp/{file}", stdin=content)
    workspace.said(f"pip install --quiet --no-index /tmp/{file}")


def test_tools_of_one_are_there_for_another(team: TeamHouse, tmp_path: Path) -> None:
    alices = team.launch(team.alice, team.slim)
    alices.until(Phase.RUNNING)
    install(alices, "ours")
    alices.said("echo mine > ~/private; echo for all > /opt/berth/py/notes")
    image = saved(team, alices)
    assert alices.said("cat ~/private") == "mine"      # it stood still, and goes on

    bobs = team.launch(team.bob, image)
    bobs.until(Phase.RUNNING)

    assert bobs.said("id -un; echo ~") == "bob\n/home/bob"
    assert bobs.said("python -c 'import ours; print(ours.__file__)'").startswith("/opt/berth/py/")
    assert bobs.said("cat /opt/berth/py/notes") == "for all"
    assert bobs.ssh("ls /home/alice/private").returncode != 0 and bobs.said("ls -A /home/alice") == ""
    install(bobs, "bobs")
    bobs.said("pip uninstall --quiet --yes ours")       # what another one installed is theirs to change
    assert bobs.ssh("python -c 'import ours'").returncode != 0
    assert alices.said("python -c 'import ours; print(1)'") == "1"
    for workspace in (alices, bobs):
        workspace.remove().until(Phase.REMOVED)
    team.house.docker.images.remove(str(image.reference))
