"""An engine that ends and starts again, on an engine of this test's own: what tells it from a stop by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from faults import standin
from faults.namespaces import inside
from faults.own_engine import own_engine

from webapp.domain.container import ContainerDetail, ContainerSpec
from webapp.domain.workspace import Limits
from webapp.engines import network_name
from webapp.engines.docker import DockerEngine

pytestmark = pytest.mark.docker

INSTANCE = "tt0restar"
SPEC = ContainerSpec(
    name=f"berth-{INSTANCE}-w-1",
    image=standin.WORKSPACE,
    hostname="box",
    uid=10001,
    gid=10001,
    group_ids=(),
    environment={},
    labels={"berth.instance": INSTANCE, "berth.workspace": "1", "berth.revision": "1"},
    mounts=(),
    ports=(),
    limits=Limits(1000, 64 * 2**20, 2**20, 64),
    network=network_name(INSTANCE),
)


@pytest.mark.parametrize("way", ["terminate", "kill"])
def test_a_container_that_went_with_its_engine_ended_before_the_engine_began(way: str) -> None:
    with own_engine("restart") as (own, _):
        engine = DockerEngine(own.url, instance=INSTANCE, host="gpu1")
        inside(own.namespace, engine.prepare)       # its firewall rules belong there
        engine.start(engine.create(SPEC))
        before = datetime.now(UTC) - timedelta(seconds=60)

        getattr(own, way)()
        own.start()

        detail, began = engine.inspect(SPEC.name), engine.started_at()
        assert isinstance(detail, ContainerDetail) and not detail.container.is_up
        assert detail.finished_at is not None and began is not None and detail.finished_at < began
        assert "start" not in {event.action for event in engine.events(before, datetime.now(UTC))}  # its memory is gone

        engine.start(SPEC.name)
        engine.stop(SPEC.name, 5)
        detail = engine.inspect(SPEC.name)
        assert detail is not None and detail.finished_at is not None and detail.finished_at > began     # by hand
        engine.close()
