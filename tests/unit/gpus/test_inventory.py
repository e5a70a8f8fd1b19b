"""From several outputs to the cards of a host: identity, faults, what is not believed, and what is not forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from webapp.domain.gpu import (
    WORDINGS,
    Condition,
    Gpu,
    Inventory,
    InventoryTrouble,
    Link,
    LinkKind,
    MigMode,
    MigSlice,
    with_known,
)
from webapp.domain.sizes import MIB
from webapp.errors import fill
from webapp.gpus import query
from webapp.gpus.output import NoAnswer, Output
from webapp.gpus.query import CARD, SAMPLE, choose, gpu_query, inventory

from .recordings import OWN

FIELDS = choose(CARD, {name for names in CARD for name in names})


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-aaaa-bbbb-cccc-{number:012x}"


def list_line(number: int, name: str = "NVIDIA Model A") -> str:
    return f"GPU {number}: {name} (UUID: {uuid(number)})\n"


def csv_line(number: int, **changes: str) -> str:
    figures = {"index": f"{number}", "uuid": uuid(number), "name": "NVIDIA Model A", "memory.total": "40000",
               "pci.bus_id": f"00000000:{number + 1:02X}:00.0", "driver_version": "999.10.01", "memory.used": "3",
               "utilization.gpu": "0", "temperature.gpu": "30", "mig.mode.current": "Disabled",
               "compute_mode": "Default", "gpu_recovery_action": "None"}
    figures |= {key.replace("__", "."): value for key, value in changes.items()}
    return ", ".join(figures[field] for field in FIELDS) + "\n"


class Smi:
    """Plays one host's nvidia-smi: answers by the option that was asked for."""

    def __init__(self, listing: str = "", rows: str = "", report: str = "", topology: str = "", *, code: int = 0):
        self.answers = {"-L": listing, "--query-gpu": rows, "-q": report, "topo": topology, "--help-query-gpu": HELP}
        self.code = code
        self.asked: list[Sequence[str]] = []

    def __call__(self, argv: Sequence[str]) -> Output:
        self.asked.append(argv)
        return Output(self.code, self.answers[argv[1].partition("=")[0]])


HELP = "".join(f'"{name}"\nWords.\n\n' for name in FIELDS)


def host(*numbers: int) -> Smi:
    return Smi("".join(map(list_line, numbers)), "".join(map(csv_line, numbers)))


def sentence(gpu: Gpu) -> str:
    why = gpu.why_not
    assert why is not None
    assert WORDINGS[why.code].next
    return fill(WORDINGS[why.code].title, why.facts)


def test_sound_host() -> None:
    smi = host(0, 1)
    smi.answers["topo"] = "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n"
    smi.answers["-q"] = ("<driver_version>999.10.01</driver_version><cuda_version>13.9</cuda_version>"
                         f"<gpu><uuid>{uuid(1)}</uuid><processes><process_info><pid>7</pid></process_info></gpu>")
    seen = inventory(smi)
    assert seen.trouble is None and seen.cuda_version == "13.9" and seen.driver_version == "999.10.01"
    assert [gpu.claimable for gpu in seen.gpus] == [(uuid(0),), (uuid(1),)]
    assert seen.gpus[0].memory_total_bytes == 40_000 * MIB and seen.gpus[0].processes is None
    assert seen.gpus[1].processes is not None and seen.gpus[1].processes[0].computes
    assert seen.topology.between(uuid(1), uuid(0)) == Link(LinkKind.NVLINK, 12)
    assert len(smi.asked) == 5


def test_a_host_without_a_driver_is_asked_once_and_says_so() -> None:
    text = ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.\n")
    smi = Smi(text, code=9)
    seen = inventory(smi, host="gpu1")
    assert seen.trouble is not None and seen.trouble.code == "driver_not_loaded" and not seen.gpus
    assert len(smi.asked) == 1
    assert "gpu1 has no NVIDIA driver" in fill(WORDINGS[seen.trouble.code].title, seen.trouble.facts)


@pytest.mark.parametrize(("output", "code"), [
    (Output(0, "No devices were found\n"), "no_devices"),
    (Output(255, "", "No supported GPUs were found\n"), "no_devices"),
    (Output(0, ""), "no_devices"),
    (Output(18, "Failed to initialize NVML: Driver/library version mismatch\n"), "driver_library_version_mismatch"),
    (Output(127, "", "no such file", NoAnswer.MISSING), "smi_missing"),
    (Output(None, "GPU 0: half", "", NoAnswer.LATE, 20.0), "smi_hangs"),
    (Output(None, "x" * 100, "", NoAnswer.UNREADABLE), "smi_unreadable"),
    (Output(1, "what is this"), "smi_unreadable"),
    (Output(-11, ""), "smi_unreadable"),
])
def test_every_trouble_has_a_sentence_and_no_invented_card(output: Output, code: str) -> None:
    seen = inventory(lambda argv: output)
    assert seen.trouble is not None and seen.trouble.code == code and seen.gpus == ()
    assert fill(WORDINGS[code].title, seen.trouble.facts) and WORDINGS[code].next


def test_a_lost_card_costs_the_others_nothing() -> None:
    lost = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system\n"
    smi = Smi(list_line(0) + lost + list_line(2), csv_line(0) + lost + csv_line(2))
    seen = inventory(smi)
    assert [(gpu.uuid, gpu.index, gpu.condition) for gpu in seen.gpus] == [
        (uuid(0), 0, Condition.OK), (uuid(2), 2, Condition.OK), (None, None, Condition.LOST)]
    assert "GPU is lost" in sentence(seen.gpus[2])


def test_a_card_that_is_lost_between_two_questions_is_lost() -> None:
    smi = host(0, 1)
    smi.answers["--query-gpu"] = csv_line(0) + csv_line(
        1, name="[GPU is lost]", memory__total="[GPU is lost]", utilization__gpu="[GPU is lost]")
    seen = inventory(smi)
    assert [gpu.condition for gpu in seen.gpus] == [Condition.OK, Condition.LOST]
    assert seen.gpus[1].name == "NVIDIA Model A" and seen.gpus[1].claimable == ()


def test_old_driver_that_gives_up_at_a_lost_card_leaves_the_others_unknown() -> None:
    lost = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system\n"
    known = inventory(host(0, 1, 2)).gpus
    seen = with_known(known, inventory(Smi(lost, lost, code=15)))
    assert seen.trouble is not None and seen.trouble.code == query.CARD_UNREACHABLE
    assert [(gpu.index, gpu.condition) for gpu in seen.gpus] == [
        (0, Condition.FAULTY), (1, Condition.LOST), (2, Condition.FAULTY)]
    for gpu in seen.gpus:
        assert sentence(gpu)


def test_a_failure_that_may_be_of_any_card_withholds_those_without_an_address() -> None:
    lost = "Unable to determine the device handle for GPU 0000:02:00.0: Unknown Error\n"
    seen = inventory(Smi(list_line(0) + list_line(1), lost, code=15))
    assert all(gpu.claimable == () and sentence(gpu) for gpu in seen.gpus)


def test_a_card_of_which_only_the_list_knows_is_not_offered() -> None:
    seen = inventory(Smi(list_line(0) + list_line(1), csv_line(0)))
    assert [gpu.claimable for gpu in seen.gpus] == [(uuid(0),), ()]
    assert "says nothing" in sentence(seen.gpus[1])


def test_card_that_needs_a_reset_is_not_offered() -> None:
    seen = inventory(Smi(list_line(0), csv_line(0, gpu_recovery_action="Reset", utilization__gpu="93")))
    assert seen.gpus[0].condition is Condition.FAULTY
    assert "asks for Reset" in sentence(seen.gpus[0])


def test_unified_memory_card_is_whole_without_a_figure() -> None:
    (gpu,) = inventory(Smi(list_line(0, "NVIDIA GB10"), csv_line(0, memory__total="[N/A]", memory__used="[N/A]"))).gpus
    assert gpu.memory_total_bytes is None and gpu.shares_host_memory and gpu.claimable == (uuid(0),)


@pytest.mark.parametrize(("printed", "code"), [
    ("N/A", "gpu_no_uuid"), ("", "gpu_no_uuid"), ("[Not Supported]", "gpu_no_uuid"),
    ("GPU-00000000-0000-0000-0000-000000000000", "gpu_no_uuid"),
    ("050042d3-e2f7-9599-0f6e-f3d07c82df41", "gpu_odd_uuid"), ("GPU-aaaa;GPU-bbbb", "gpu_odd_uuid"),
    ("all", "gpu_odd_uuid"), ("GPU-1", "gpu_odd_uuid"),
])
def test_card_without_a_uuid_is_shown_and_says_why_it_cannot_be_had(printed: str, code: str) -> None:
    listing = f"GPU 0: Orin (nvgpu) (UUID: {printed})\n"
    (gpu,) = inventory(Smi(listing, csv_line(0, uuid=printed, memory__total="[N/A]"))).gpus
    assert gpu.why_not is not None and gpu.why_not.code == code and gpu.claimable == ()
    assert "GPU 0" in sentence(gpu)


def test_mig_parent_is_not_had_whole_but_its_slices_are() -> None:
    part = "MIG-0000000a-aaaa-bbbb-cccc-00000000000a"
    listing = f"{list_line(0)}  MIG 3g.20gb     Device  0: (UUID: {part})\n"
    report = (f"<gpu><uuid>{uuid(0)}</uuid><mig_devices><mig_device><index>0</index>"
              "<gpu_instance_id>2</gpu_instance_id><fb_memory_usage><total>19968 MiB</total></fb_memory_usage>"
              "</mig_device></mig_devices></gpu>")
    (gpu,) = inventory(Smi(listing, csv_line(0, mig__mode__current="Enabled", utilization__gpu="[N/A]"), report)).gpus
    assert gpu.mig_mode is MigMode.ENABLED and gpu.claimable == (part,)
    assert gpu.mig_slices == (MigSlice(0, part, "3g.20gb", 2, None, 19_968 * MIB),)
    assert "MIG" in sentence(gpu)


def test_prohibited_card_is_not_offered() -> None:
    (gpu,) = inventory(Smi(list_line(0), csv_line(0, compute_mode="Prohibited"))).gpus
    assert gpu.claimable == () and "Prohibited" in sentence(gpu)


def test_two_cards_of_one_uuid_are_both_withheld() -> None:
    listing = list_line(0) + list_line(1).replace(uuid(1), uuid(0))
    seen = inventory(Smi(listing, csv_line(0) + csv_line(1, uuid=uuid(0))))
    assert len(seen.gpus) == 2 and all(gpu.claimable == () for gpu in seen.gpus)


def test_eighteen_cards_stand_in_the_order_of_their_numbers() -> None:
    shuffled = [17, 3, 10, 0, 1, 2, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16]
    seen = inventory(Smi("".join(map(list_line, shuffled)), "".join(map(csv_line, sorted(shuffled)))))
    assert [gpu.index for gpu in seen.gpus] == list(range(18))
    assert [gpu.uuid for gpu in seen.gpus] == [uuid(number) for number in range(18)]


def test_cards_and_faults_that_only_the_report_has_are_not_believed() -> None:
    """It holds process names, which users write."""
    smi = host(0, 1)
    smi.answers["-q"] = (f"<gpu><uuid>{uuid(0)}</uuid><gpu_recovery_action>Reset</gpu_recovery_action></gpu>"
                         f"<gpu><uuid>{uuid(9)}</uuid></gpu>Unable to determine the device handle for GPU "
                         "0000:02:00.0: GPU is lost")
    assert [gpu.claimable for gpu in inventory(smi).gpus] == [(uuid(0),), (uuid(1),)]


def test_report_that_names_a_card_twice_adds_nothing_to_it() -> None:
    smi = host(0)
    smi.answers["-q"] = f"<gpu><uuid>{uuid(0)}</uuid><processes/></gpu>" * 2
    assert inventory(smi).gpus[0].processes is None


def test_report_alone_is_better_than_nothing() -> None:
    lost = "Unable to determine the device handle for GPU 0000:21:00.0: GPU is lost\n"
    report = (OWN / "xml" / "reset-mig-and-odd-names.xml").read_text()
    seen = inventory(Smi(lost, lost, report, code=15))
    assert [gpu.condition for gpu in seen.gpus] == [Condition.OK, Condition.LOST, Condition.OK]


def test_positions_in_the_report_are_no_indexes_beside_a_list() -> None:
    smi = Smi(list_line(3), csv_line(3), f"<gpu><uuid>{uuid(3)}</uuid></gpu>")
    assert inventory(smi).gpus[0].index == 3


def test_topology_that_does_not_name_every_card_is_not_used() -> None:
    smi = host(0, 1, 2)
    smi.answers["topo"] = "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n"
    assert inventory(smi).topology.links == {}


def test_field_that_is_refused_is_left_out() -> None:
    known = set(FIELDS)

    class Old(Smi):
        def __call__(self, argv: Sequence[str]) -> Output:
            if "gpu_recovery_action" in argv[1]:
                return Output(2, 'Field "gpu_recovery_action" is not a valid field to query.\n\n')
            return super().__call__(argv)

    without = csv_line(0).rpartition(", ")[0] + "\n"
    assert FIELDS[-1] == "gpu_recovery_action"
    (gpu,) = inventory(Old(list_line(0), without), known_fields=known).gpus
    assert gpu.claimable == (uuid(0),)


def test_driver_that_does_not_tell_its_fields_is_asked_for_old_ones() -> None:
    smi = host(0)
    smi.answers["--help-query-gpu"] = "Invalid combination of input arguments."
    inventory(smi)
    asked = next(argv for argv in smi.asked if argv[1].startswith("--query-gpu"))
    assert "mig.mode.current" not in asked[1] and "uuid" in asked[1]


def test_better_names_are_chosen_where_they_are_known() -> None:
    assert choose((("gpu_recovery_action", "reset_status.reset_required"),), {"reset_status.reset_required"}) == (
        "reset_status.reset_required",)
    assert choose(SAMPLE, {"uuid", "gpu_uuid", "count"}) == ("count", "uuid")


def test_command_lines() -> None:
    assert gpu_query(("uuid", "index"), loop_ms=1000) == (
        "nvidia-smi", "--query-gpu=uuid,index", "--format=csv,noheader,nounits", "--loop-ms=1000")
    assert query.apps_query()[1].endswith("process_name")


def test_hanging_driver_is_not_asked_again() -> None:
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str]) -> Output:
        asked.append(argv)
        if argv[1] == "-L":
            return Output(0, list_line(0))
        return Output(None, "", "", NoAnswer.LATE, 20.0)

    seen = inventory(run, known_fields=FIELDS)
    assert len(asked) == 2 and seen.trouble is not None and seen.trouble.code == "smi_hangs"
    assert seen.gpus[0].claimable == ()


# ---- what was known before


def test_known_card_that_vanishes_is_lost_and_keeps_its_name() -> None:
    known = inventory(host(0, 1)).gpus
    seen = with_known(known, inventory(host(1)))
    assert [(gpu.uuid, gpu.condition) for gpu in seen.gpus] == [(uuid(0), Condition.LOST), (uuid(1), Condition.OK)]
    assert "was here before" in sentence(seen.gpus[0])


def test_no_devices_at_all_is_every_known_card_lost_not_none() -> None:
    known = inventory(host(0, 1)).gpus
    seen = with_known(known, inventory(Smi("No devices were found\n", code=6)))
    assert [gpu.condition for gpu in seen.gpus] == [Condition.LOST, Condition.LOST]


@pytest.mark.parametrize("smi", [
    lambda argv: Output(18, "Failed to initialize NVML: Driver/library version mismatch"),
    lambda argv: Output(None, "", "", NoAnswer.LATE, 20.0),
    lambda argv: Output(1, "what is this"),
])
def test_unreadable_inventory_is_not_a_loss_but_refuses_new_work(smi: Callable[[Sequence[str]], Output]) -> None:
    known = inventory(host(0, 1)).gpus
    seen = with_known(known, inventory(smi))
    assert [gpu.condition for gpu in seen.gpus] == [Condition.FAULTY, Condition.FAULTY]
    assert all(gpu.claimable == () and sentence(gpu) for gpu in seen.gpus)


def test_quarantine_outlives_an_unreadable_inventory() -> None:
    known = [replace(inventory(host(0)).gpus[0], condition=Condition.QUARANTINED)]
    trouble = InventoryTrouble("smi_hangs", {"host": "gpu1", "seconds": 20, "detail": ""})
    assert with_known(known, Inventory(trouble=trouble)).gpus[0].condition is Condition.QUARANTINED
    assert sentence(known[0])


def test_lost_card_is_shown_once_under_its_own_name() -> None:
    lost = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost\n"
    known = inventory(host(0, 1)).gpus
    seen = with_known(known, inventory(Smi(list_line(0) + lost, csv_line(0) + lost)))
    assert [(gpu.uuid, gpu.condition) for gpu in seen.gpus] == [(uuid(0), Condition.OK), (uuid(1), Condition.LOST)]


def test_card_that_comes_back_is_as_it_is_seen() -> None:
    known = with_known(inventory(host(0, 1)).gpus, inventory(host(0))).gpus
    assert all(gpu.condition is Condition.OK for gpu in with_known(known, inventory(host(0, 1))).gpus)
