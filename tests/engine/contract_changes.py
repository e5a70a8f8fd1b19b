"""What every engine does with a container that is there: other limits while it lives, and what a move needs to know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from contract_lab import UID, Lab, Spec, detail_of, running

from webapp.domain.container import LABEL_PRIVATE_IMAGE, File, PrivateImage
from webapp.domain.plan import private_image, private_repository
from webapp.domain.workspace import Limits
from webapp.errors import EngineRejected

MIB = 2**20


def limits(cpu_millis: int, mib: int) -> Limits:
    return Limits(cpu_millis, mib * MIB, MIB)


class ChangesContract:
    # -- limits

    def test_limits_change_while_it_runs_on(self, lab: Lab, spec: Spec) -> None:
        id_ = running(lab, spec())
        began = detail_of(lab, id_).started_at
        for asked in (limits(1500, 256), limits(250, 48), limits(500, 64)):
            lab.engine.update(id_, asked)
            detail = detail_of(lab, id_)
            assert (detail.cpu_millis, detail.memory_bytes) == (asked.cpu_millis, asked.memory_bytes)
        assert detail.container.is_up and detail.started_at == began

    def test_limits_of_one_that_is_down_are_those_of_its_next_start(self, lab: Lab, spec: Spec) -> None:
        id_ = lab.engine.create(spec())
        lab.engine.update(id_, limits(1000, 128))
        lab.engine.start(id_)
        lab.engine.stop(id_, 5)
        assert (detail_of(lab, id_).cpu_millis, detail_of(lab, id_).memory_bytes) == (1000, 128 * MIB)
        lab.engine.update(id_, limits(1000, 256))
        lab.engine.start(id_)
        assert detail_of(lab, id_).memory_bytes == 256 * MIB

    def test_limits_of_none_are_refused(self, lab: Lab) -> None:
        with pytest.raises(EngineRejected):
            lab.engine.update("berth-nothing-w-1", limits(1000, 128))

    def test_memory_in_use_is_told_of_one_that_runs(self, lab: Lab, spec: Spec) -> None:
        id_ = lab.engine.create(spec())
        assert lab.engine.memory_used(id_) is None
        lab.engine.start(id_)
        used = lab.engine.memory_used(id_)
        assert used is not None and 0 <= used < 64 * MIB

    # -- what is in it

    def test_layer_grows_with_what_is_written_and_not_with_volumes(self, lab: Lab, spec: Spec) -> None:
        id_ = running(lab, spec())
        before = lab.engine.layer(id_)
        lab.engine.put(id_, [File("/home/installed", 0o644, UID, UID, b"x" * MIB),
                             File("/etc/berth/data", 0o644, UID, UID, b"y" * MIB)])
        after = lab.engine.layer(id_)
        assert MIB <= after.size_bytes - before.size_bytes < 2 * MIB
        assert after.layers == before.layers >= 1

    def test_each_commit_adds_a_layer(self, lab: Lab, spec: Spec) -> None:
        id_ = lab.engine.create(spec())
        lab.engine.put(id_, [File("/home/installed", 0o644, UID, UID, b"x")])
        lab.engine.commit(id_, lab.committed)
        moved = lab.engine.create(spec("2", image=lab.committed))
        assert lab.engine.layer(moved).layers == lab.engine.layer(id_).layers + 1

    def test_layer_of_none_is_refused(self, lab: Lab) -> None:
        with pytest.raises(EngineRejected):
            lab.engine.layer("berth-nothing-w-1")

    def test_room_is_told_where_it_is_known(self, lab: Lab) -> None:
        room = lab.engine.room()
        assert room is None or 0 < room.free_bytes <= room.total_bytes

    # -- private images

    def test_image_tells_when_it_was_made(self, lab: Lab, spec: Spec) -> None:
        id_ = running(lab, spec())
        lab.engine.stop(id_, 5)
        made, ended = lab.engine.commit(id_, lab.committed).created_at, detail_of(lab, id_).finished_at
        assert made is not None and ended is not None and made > ended
        assert datetime.now(UTC) - made < timedelta(minutes=1)

    def test_private_images_are_found_by_name_and_without(self, lab: Lab, spec: Spec) -> None:
        repository = private_repository(lab.instance, "abc")
        id_ = lab.engine.create(spec())
        lab.engine.put(id_, [File("/home/installed", 0o644, UID, UID, b"x")])
        first = lab.engine.commit(id_, f"{repository}:r2", private=True)
        assert lab.engine.private_images() == [PrivateImage(repository, f"{repository}:r2", first.id)]
        second = lab.engine.commit(id_, f"{repository}:r2", private=True)
        assert {image.id: image for image in lab.engine.private_images()} == {
            first.id: PrivateImage(repository, first.id, first.id),
            second.id: PrivateImage(repository, f"{repository}:r2", second.id)}
        assert lab.engine.names_in(repository) == [f"{repository}:r2"]
        assert lab.other_engine.private_images() == lab.engine.names_in(f"{repository}-other") == []
        for image in lab.engine.private_images():
            lab.engine.remove_image(image.reference)
        assert lab.engine.private_images() == []
        assert lab.engine.image(first.id) is lab.engine.image(second.id) is None

    def test_image_of_a_private_one_is_none_itself(self, lab: Lab, spec: Spec) -> None:
        """What somebody saves of a workspace that has moved is theirs."""
        private = private_image(lab.instance, "abc", 2)
        lab.engine.commit(lab.engine.create(spec()), private, private=True)
        labels = {**spec().labels, LABEL_PRIVATE_IMAGE: ""}
        moved = lab.engine.create(spec("2", image=private, labels=labels))
        saved = lab.engine.commit(moved, lab.committed)
        assert not saved.labels.get(LABEL_PRIVATE_IMAGE)
        assert [image.reference for image in lab.engine.private_images()] == [private]
        lab.engine.remove(moved)
        lab.engine.remove_image(lab.committed)
        lab.engine.remove_image(private)
