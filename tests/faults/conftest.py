"""Fixtures of whole houses on a real engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import docker
import pytest

from faults import standin
from faults.house import Ground, House, open_house

MakeHouse = Callable[..., House]    # (name, ground=…, url=…, settings=…)


@pytest.fixture(scope="session")
def ground(engine_url: str) -> Iterator[Ground]:
    """The engine that all tests share, with the stand-in's images."""
    with contextlib.closing(docker.DockerClient(base_url=engine_url, timeout=120)) as client:
        standin.make_images(client)
        yield Ground(engine_url, client)


@pytest.fixture(scope="module")
def make_house(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeHouse]:
    """Houses that last as long as the module's tests."""
    shared = ground
    with contextlib.ExitStack() as stack:
        def make(name: str, *, ground: Ground = shared, **named: object) -> House:
            return stack.enter_context(open_house(tmp_path_factory.mktemp(name), ground, **named))  # type: ignore[arg-type]

        yield make
