"""The fixtures of tests/faults, and a house with a team in it."""

from __future__ import annotations

import os

import pytest
from faults.conftest import MakeHouse, ground, make_house  # noqa: F401

from journeys.team import TeamHouse, settle


@pytest.fixture(scope="module")
def team(
    make_house: MakeHouse, workspace_image: str, slim_image: str, tmp_path_factory: pytest.TempPathFactory,  # noqa: F811
) -> TeamHouse:
    """With its agent at work."""
    if os.geteuid() != 0:
        pytest.skip("folders of the host must be root's own, so that only root can make them for a test")
    roots = tmp_path_factory.mktemp("roots")
    house = make_house("team", settings={"VOLUME_ROOTS": str(roots)})
    settled = settle(house, roots, workspace_image, slim_image)
    house.start_agent()
    return settled
