import pytest
from sqlalchemy import func, select

from webapp.services import hosts
from webapp.store.tables import Event, Host, Intent

ENGINE = "unix:///run/docker.sock"


def test_same_server_is_known_again(do, cast, row, store):
    before = row(Intent, 1).seq
    assert do(hosts.ensure_local, name="gpu1", engine_url=ENGINE).id == cast.host_id
    assert row(Intent, 1).seq == before


@pytest.mark.parametrize("name, engine_url", [("renamed", ENGINE), ("gpu1", "unix:///other.sock")])
def test_server_that_was_renamed_or_moved_its_engine_keeps_its_row(do, cast, row, store, name, engine_url):
    assert do(hosts.ensure_local, name=name, engine_url=engine_url).id == cast.host_id
    host = row(Host, cast.host_id)
    assert (host.name, host.engine_url) == (name, engine_url)
    with store.read() as session:
        assert session.scalar(select(func.count()).where(Event.action == "host.change")) == 1


def test_another_server_is_another_host(do, cast):
    assert do(hosts.ensure_local, name="gpu2", engine_url="unix:///other.sock").id != cast.host_id
