"""An engine that knows simulated cards by CDI, and the real workspace image on it.

`./run test modern-engine` runs these beside the engine, in a network of their own (scripts/modern_engine.py).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import parts
import pytest
from faults import standin
from faults.conftest import ground, make_house  # noqa: F401
from faults.house import Ground
from faults.toolkit import Toolkit

from webapp.simulation import presets
from webapp.simulation.state import Simulation

PIECE = 2 ** 20


@pytest.fixture(scope="session")
def machine_engine() -> str:
    """Address of the machine's own engine, where the workspace image was built."""
    url = os.environ.get("BERTH_TEST_MACHINE_ENGINE")
    if not url:
        pytest.skip("run by ./run test modern-engine")
    return url


@pytest.fixture(scope="session")
def workspace_image(machine_engine: str, engine_url: str) -> str:
    """Brought over from the machine's own engine, as no registry has it: in one layer, in half the time."""
    reference = parts.workspace_image(machine_engine)
    with parts.locked("image"), _client(engine_url) as here, _client(machine_engine) as there:
        if not here.images(reference):
            repository, _, tag = reference.partition(":")
            container = there.create_container(reference)
            try:
                here.import_image_from_stream(there.export(container, PIECE), repository=repository, tag=tag,
                                              changes=_changes(there.inspect_image(reference)["Config"]))
            finally:
                there.remove_container(container)
    return reference


def _client(url: str) -> contextlib.closing[docker.APIClient]:
    return contextlib.closing(docker.APIClient(base_url=url, version="auto", timeout=600))


def _changes(config: Mapping[str, Any]) -> list[str]:
    """What an import leaves out."""
    variables = [line.partition("=")[::2] for line in config["Env"]]
    return [*(f"ENV {name}={json.dumps(value)}" for name, value in variables),
            *(f"LABEL {name}={json.dumps(value)}" for name, value in config["Labels"].items()),
            *(f"{word.upper()} {json.dumps(config[word])}" for word in ("Entrypoint", "Cmd") if config[word]),
            f"WORKDIR {config['WorkingDir'] or '/'}", f"STOPSIGNAL {config['StopSignal']}"]


@pytest.fixture(scope="session")
def image_with_python(ground: Ground) -> str:  # noqa: F811
    if not ground.docker.images.list(standin.WITH_PYTHON):
        standin.make_image_with_python(ground.docker)
    return standin.WITH_PYTHON


@pytest.fixture(scope="module")
def cards(machine_engine: str, engine_url: str) -> Iterator[Toolkit]:
    """Four cards, and two H100 of which the first is in slices. The file appears under a running engine."""
    toolkit = Toolkit(Path(engine_url.removeprefix("unix://")).parent)
    toolkit.set_up_cdi(Simulation(cards=[*presets.preset("four").cards, *presets.preset("mig").cards]))
    yield toolkit
    toolkit.forget_cdi()
