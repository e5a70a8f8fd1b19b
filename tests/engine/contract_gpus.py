"""The part of the contract about somebody else's work on the cards of a machine."""

from __future__ import annotations

from contract_lab import Lab, Spec, eventually

from webapp.domain.container import FolderMount, GpuAccess
from webapp.engines import Engine

FIRST, SECOND = "GPU-51e1a7ed-aaaa-bbbb-cccc-000000000001", "GPU-51e1a7ed-aaaa-bbbb-cccc-000000000002"
SIMULATED = GpuAccess((FIRST,), (FolderMount("/srv", "/usr/lib/simulated-gpus", read_only=True),))


class GpusContract:
    def test_foreign_container_with_cards_is_told_while_it_runs(self, lab: Lab, spec: Spec) -> None:
        name = by_hand(lab)
        assert name not in users(lab)

        lab.run_foreign(name, (SECOND, FIRST))
        assert users(lab) == {name: (FIRST, SECOND)}
        assert users(lab) == {name: (FIRST, SECOND)}, "the second time it is known already"

        lab.remove_by_hand(name)
        assert name not in users(lab)

    def test_foreign_container_without_cards_is_nobody(self, lab: Lab, spec: Spec) -> None:
        lab.run_foreign(by_hand(lab), ())

        assert users(lab) == {}

    def test_monitor_that_says_so_is_left_out(self, lab: Lab, spec: Spec) -> None:
        lab.run_foreign(by_hand(lab), (FIRST,), {"berth.ignore": "gpus"})
        lab.run_foreign(by_hand(lab, "2"), (SECOND,), {"berth.ignore": "ports"})

        assert users(lab) == {by_hand(lab, "2"): (SECOND,)}

    def test_workspace_is_foreign_to_the_other_instance_alone(self, lab: Lab, spec: Spec) -> None:
        lab.other_engine.prepare()
        mine = spec(gpus=SIMULATED)
        labels = {**mine.labels, "berth.ignore": "gpus"}        # of its image, perhaps
        id_ = lab.engine.create(spec(gpus=SIMULATED, labels=labels))
        assert users(lab, lab.other_engine) == {}

        lab.engine.start(id_)
        assert users(lab, lab.other_engine) == {mine.name: (FIRST,)}
        assert users(lab) == {}

        lab.engine.stop(id_, 2)
        eventually(lambda: not users(lab, lab.other_engine))


def by_hand(lab: Lab, number: str = "1") -> str:
    """A name that looks like Berth's own: names prove nothing."""
    return f"berth-{lab.instance}-w-by-hand-{number}"


def users(lab: Lab, engine: Engine | None = None) -> dict[str, tuple[str, ...]]:
    """Those of this lab: other tests may share the engine."""
    found = (engine or lab.engine).gpu_users()
    return {user.name: user.gpus for user in found if user.name.startswith(f"berth-{lab.instance}-")}
