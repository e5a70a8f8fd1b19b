"""Fixtures that every tier has, and how skipped tests are judged.

`engine_url`, `workspace_image`, `instance` and `ports` are what a test on real Docker stands on; all of a worker's own,
so that tests may run side by side.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import parts
from databases import IS_POSTGRESQL, Databases, databases

from webapp.domain.ports import PortRange

PORTS_PER_WORKER = 200
FIRST_PORT = 61_000     # above the kernel's outgoing ports (32768–60999), and far from the default range


@pytest.fixture(scope="session", name="databases")
def _databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Databases by name, of this worker alone: files, or those of a PostgreSQL."""
    with databases(tmp_path_factory.mktemp("databases")) as found:
        yield found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is about one kind of database has nothing to say about the other."""
    other = "sqlite" if IS_POSTGRESQL else "postgresql"
    left_out = [item for item in items if item.get_closest_marker(other)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(other)]


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """Address of a real Docker Engine: BERTH_TEST_ENGINE, or a private one."""
    with parts.engine() as url:
        yield url


@pytest.fixture(scope="session")
def workspace_image(engine_url: str) -> str:
    """The workspace image on the local base; made once, a second or a quarter of an hour."""
    return parts.workspace_image(engine_url)


@pytest.fixture(scope="session")
def slim_image(engine_url: str) -> str:
    """The workspace image without JupyterLab."""
    return parts.workspace_image(engine_url, jupyter=False)


@pytest.fixture
def instance(engine_url: str) -> Iterator[str]:
    """An instance id of one test; what the engine has under it is removed afterwards."""
    with parts.instance(engine_url) as name:
        yield name


@pytest.fixture(scope="session")
def ports(request: pytest.FixtureRequest) -> PortRange:
    """Ports of this worker alone."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    first = FIRST_PORT + int(worker) * PORTS_PER_WORKER
    return PortRange(first, first + PORTS_PER_WORKER - 1)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """On CI everything must run but what needs a GPU: a skip that nobody sees is a test that nobody has."""
    if _is_worker(session.config) or os.environ.get("CI") != "true":
        return
    if any("gpu" not in report.keywords for report in _reports(session.config, "skipped")):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Counts for the line at the end of `./run test`."""
    if os.environ.get("CI") == "true":
        for report in _reports(config, "skipped"):
            if "gpu" not in report.keywords:
                terminalreporter.write_line(f"skipped on CI, which is a failure: {report.nodeid}", red=True)
    totals = os.environ.get("BERTH_TEST_TOTALS")
    if totals and not _is_worker(config):
        passed, failed, errors, skipped = (
            len(_reports(config, kind)) for kind in ("passed", "failed", "error", "skipped"))
        with Path(totals).open("a") as out:
            out.write(f"{passed} {failed + errors} {skipped}\n")


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _reports(config: pytest.Config, kind: str) -> list[Any]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return list(reporter.stats.get(kind, [])) if reporter else []
