"""The nvidia-smi stand-in prints what a real one prints, and fails as a real one fails."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from unit.gpus.recordings import REAL
from unit.simulation.conftest import SimulatedHost

from webapp.simulation import presets, state
from webapp.simulation.nvidia_smi import reading
from webapp.simulation.nvidia_smi.program import answer

EVERY_PRESET = sorted(presets.PRESETS)
needs_recordings = pytest.mark.skipif(not REAL.is_dir(), reason="the recordings of real machines are not here")
FIELDS = "index,uuid,memory.used,utilization.gpu,power.draw,fan.speed"


def test_list_names_each_card(host: SimulatedHost) -> None:
    assert host.smi("-L").lines == [
        f"GPU {index}: NVIDIA A100-SXM4-80GB (UUID: {uuid})" for index, uuid in enumerate(host.uuids)]


@pytest.mark.parametrize("host", ["mig"], indirect=True)
def test_list_has_slices_in_the_form_of_real_ones(host: SimulatedHost) -> None:
    lines = host.smi("-L").lines
    assert re.fullmatch(r"  MIG 3g\.40gb     Device  0: \(UUID: MIG-51e1a7ed-[0-9a-f-]{27}\)", lines[1])
    assert [line[:5] for line in lines] == ["GPU 0", "  MIG", "  MIG", "  MIG", "  MIG", "GPU 1"]


@pytest.mark.parametrize("host", ["jetson"], indirect=True)
def test_jetson_has_no_prefix_and_no_figures(host: SimulatedHost) -> None:
    assert re.fullmatch(r"GPU 0: Orin \(nvgpu\) \(UUID: 51e1a7ed-[0-9a-f-]{27}\)", host.smi("-L").lines[0])
    assert host.query("memory.total,utilization.gpu,power.draw") == [["[N/A]"] * 3]


def test_csv_has_titles_and_units(host: SimulatedHost) -> None:
    with host.changed() as simulation:
        presets.put_load(simulation.cards[0], utilization_percent=100, memory_mib=40960)
    asked = host.smi(f"--query-gpu={FIELDS}", "--format=csv")
    assert asked.lines[:2] == [
        "index, uuid, memory.used [MiB], utilization.gpu [%], power.draw [W], fan.speed [%]",
        f"0, {host.uuids[0]}, 40960 MiB, 100 %, 366.10 W, [N/A]"]
    bare = host.smi(f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
    assert bare.lines[0] == f"0, {host.uuids[0]}, 40960, 100, 366.10, [N/A]"


def test_other_names_of_a_field_give_the_same_column(host: SimulatedHost) -> None:
    asked = host.smi("--query-gpu=gpu_name, clocks.sm", "--format=csv")
    assert asked.lines[0] == "name, clocks.current.sm [MHz]"
    assert asked.lines[1] == "NVIDIA A100-SXM4-80GB, 210 MHz"


@needs_recordings
def test_every_field_that_it_knows_is_one_of_a_real_driver(host: SimulatedHost) -> None:
    recorded = (REAL / "csv" / "h100-mig-590.48-query-all.csv").read_text().splitlines()[0]
    known = re.findall(r'^"([^"]+)"', host.smi("--help-query-gpu").text, re.MULTILINE)
    titles = host.smi(f"--query-gpu={','.join(known)}", "--format=csv").lines[0].split(", ")
    older = {"reset_status.reset_required", "reset_status.drain_and_reset_recommended"}     # of drivers before 590
    assert [title for title in titles if title not in older] == [
        title for title in recorded.split(", ") if title in titles]


def test_unknown_field_fails_the_whole_query_on_standard_output(host: SimulatedHost) -> None:
    asked = host.smi("--query-gpu=index,colour", "--format=csv")
    assert (asked.code, asked.text) == (2, 'Field "colour" is not a valid field to query.\n\n')


def test_field_that_this_driver_does_not_know_is_in_no_help(host: SimulatedHost) -> None:
    with host.changed() as simulation:
        simulation.host.unknown_fields = ["compute_cap"]
    assert host.smi("--query-gpu=compute_cap", "--format=csv").code == 2
    assert '"compute_cap"' not in host.smi("--help-query-gpu").text


@pytest.mark.parametrize("arguments", [("--frobnicate",), ("--query-gpu=index",), ("-q",)])
def test_arguments_that_it_does_not_know_are_refused(host: SimulatedHost, arguments: tuple[str, ...]) -> None:
    assert host.smi(*arguments).code == 2


def test_processes_of_all_cards(host: SimulatedHost) -> None:
    fields = "--query-compute-apps=gpu_uuid,pid,name,used_memory"
    assert host.smi(fields, "--format=csv").text == "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
    with host.changed() as simulation:
        presets.put_process(simulation.cards[1], "python, train.py", memory_mib=512, pid=77)
        simulation.cards[1].processes.append(state.Process(78, "Xorg", 9, kind="G"))
    asked = host.smi(fields, "--format=csv,noheader")
    assert asked.lines == [f"{host.uuids[1]}, 77, python, train.py, 512 MiB"]


@needs_recordings
@pytest.mark.parametrize("host", ["four", "mig"], indirect=True)
def test_xml_has_the_tags_of_a_real_one_in_their_order(host: SimulatedHost) -> None:
    with host.changed() as simulation:
        presets.put_process(simulation.cards[0], "python <train> & co", memory_mib=512)
    real: list[str] = []
    for name in ("h100x8-580.105", "rtx4000-sff-ada-595.84-procs", "a100-535.54-mig4-attached4-listed1"):
        real += paths((REAL / "xml" / f"{name}.xml").read_text())
    ours = paths(host.smi("-q", "-x").text)
    assert not set(ours) - set(real)
    newest = paths((REAL / "xml" / "h100x8-580.105.xml").read_text())
    assert [path for path in ours if path in newest] == [path for path in newest if path in ours]


def paths(document: str) -> list[str]:
    """Every path of tags in the document once, in order."""
    found: dict[str, None] = {}

    def walk(element: ElementTree.Element, above: str) -> None:
        found.setdefault(f"{above}/{element.tag}")
        for child in element:
            walk(child, f"{above}/{element.tag}")
    walk(ElementTree.fromstring(document), "")
    return list(found)


@needs_recordings
def test_xml_has_the_units_of_a_real_one(host: SimulatedHost) -> None:
    def units(document: str) -> dict[str, str]:
        return {element.tag: match[1] for element in ElementTree.fromstring(document).iter()
                if (match := re.fullmatch(r"-?[\d.]+ (\S+)", element.text or ""))}
    real, ours = units((REAL / "xml" / "h100x8-580.105.xml").read_text()), units(host.smi("-q", "-x").text)
    assert {tag: unit for tag, unit in ours.items() if real.get(tag) != unit} == {}


@pytest.mark.parametrize("host", ["mig"], indirect=True)
def test_xml_escapes_what_a_process_calls_itself(host: SimulatedHost) -> None:
    with host.changed() as simulation:
        presets.put_process(simulation.cards[0], "a <b> & c", memory_mib=None)
    gpu = ElementTree.fromstring(host.smi("-q", "-x").text).find("gpu")
    assert gpu is not None
    assert gpu.findtext("processes/process_info/process_name") == "a <b> & c"
    assert gpu.findtext("processes/process_info/used_memory") == "N/A"
    assert len(gpu.findall("mig_devices/mig_device")) == 4


def test_topology_has_the_pairs(host: SimulatedHost) -> None:
    lines = host.smi("topo", "-m").lines
    assert lines[0] == "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    assert lines[1] == "GPU0\t X \tNV12\tSYS\tSYS\t0-31\t0\t\tN/A"
    assert lines[3] == "GPU2\tSYS\tSYS\t X \tNV12\t32-63\t1\t\tN/A"


@needs_recordings
def test_topology_with_escape_sequences_has_the_form_of_a_real_one(host: SimulatedHost) -> None:
    with host.changed() as simulation:
        simulation.host.ansi = True
    recorded = (REAL / "topo" / "8gpu-9nic-ansi.txt").read_text().splitlines()[0]
    ours = host.smi("topo", "-m").lines[0]
    assert (ours[:5], ours[-15:]) == (recorded[:5], recorded[-15:])


@pytest.mark.parametrize("host", EVERY_PRESET, indirect=True)
def test_table_is_straight_and_says_that_it_is_simulated(host: SimulatedHost) -> None:
    with host.changed() as simulation:
        card = simulation.cards[0]
        presets.put_load(card, utilization_percent=100, memory_mib=card.memory_mib)
        presets.put_process(card, "/a/path/that/is/longer/than/the/column/for/it/python", memory_mib=1)
    lines = host.smi().lines
    assert {len(line) for line in lines[1:-1] if line} == {91}
    assert lines[-1] == "Simulated by Berth: these cards do not exist."


# -- faults of one card


def test_lost_card_is_a_line_in_the_middle_and_the_others_keep_their_numbers(host: SimulatedHost) -> None:
    with host.changed() as simulation:
        simulation.cards[1].fault = "lost"
    asked = host.smi("--query-gpu=index,uuid,count", "--format=csv,noheader")
    assert asked.code == 15
    assert asked.lines == [
        f"0, {host.uuids[0]}, 4",
        "Unable to determine the device handle for GPU1: 0000:0F:00.0: GPU is lost.  Reboot the system to recover "
        "this GPU",
        f"2, {host.uuids[2]}, 4", f"3, {host.uuids[3]}, 4"]


@pytest.mark.parametrize("driver, named", [("418.87.01", "GPU 0000:0F:00.0:"), ("535.54.03", "GPU0000:0F:00.0:"),
                                           ("580.105.08", "GPU1: 0000:0F:00.0:")])
def test_lost_card_is_named_as_its_driver_does(host: SimulatedHost, driver: str, named: str) -> None:
    with host.changed() as simulation:
        simulation.host.driver, simulation.cards[1].fault = driver, "lost-stops"
    asked = host.smi("-L")
    assert asked.code == 15
    assert asked.lines == [f"Unable to determine the device handle for {named} GPU is lost.  Reboot the system to "
                           "recover this GPU"]


def test_card_that_is_gone_moves_up_the_ones_behind_it(host: SimulatedHost) -> None:
    with host.changed() as simulation:
        simulation.cards[1].fault = "gone"
    assert host.query("index,uuid,count") == [
        [str(index), host.uuids[number], "3"] for index, number in enumerate((0, 2, 3))]


@pytest.mark.parametrize("fault, cell", [("reset-required", "[GPU requires reset]"), ("not-reported", "[N/A]"),
                                         ("hidden", "[Insufficient Permissions]")])
def test_card_that_cannot_be_measured_keeps_its_identity(host: SimulatedHost, fault: str, cell: str) -> None:
    with host.changed() as simulation:
        simulation.cards[2].fault = fault
    rows = host.query(FIELDS + ",memory.total")
    assert rows[2] == ["2", host.uuids[2], cell, cell, cell, cell, "81920"]
    assert rows[3][2:5] == ["0", "0", "61.00"]
    gpu = ElementTree.fromstring(host.smi("-q", "-x").text).findall("gpu")[2]
    assert gpu.findtext("utilization/gpu_util") == cell.strip("[]")


def test_stuck_card_is_only_told_by_its_recovery_action(host: SimulatedHost) -> None:
    with host.changed() as simulation:
        simulation.cards[3].fault = "err"
    assert host.query("fan.speed,utilization.gpu,gpu_recovery_action")[3] == ["[Unknown Error]", "93", "Reset"]
    assert "| ERR!  31C" in host.smi().text


def test_any_cell_can_be_overwritten(host: SimulatedHost) -> None:
    with host.changed() as simulation:
        simulation.cards[0].cells["power.draw"] = "ERR!"
    assert host.query("power.draw")[0] == ["ERR!"]


# -- faults of the host


@pytest.mark.parametrize("fault, code, recorded", [
    ("no-driver", 9, "driver-not-loaded"), ("no-library", 12, "libnvidia-ml-missing"), ("no-devices", 6, "no-devices"),
    ("mismatch", 18, "version-mismatch-library-line"), ("nvml-unknown", 255, "nvml-unknown-error"),
    ("permissions", 255, "nvml-insufficient-permissions")])
@needs_recordings
def test_host_fails_in_the_words_of_a_real_one(host: SimulatedHost, fault: str, code: int, recorded: str) -> None:
    with host.changed() as simulation:
        simulation.host.fault, simulation.host.driver = fault, "580.159.03"
    for arguments in (("-L",), ("--query-gpu=index", "--format=csv"), ("-q", "-x"), ("topo", "-m"), ()):
        asked = host.smi(*arguments)
        assert asked.code == code
        assert asked.text.strip() == (REAL / "errors" / f"{recorded}.txt").read_text().strip()


def test_output_can_be_cut_and_garbage(host: SimulatedHost) -> None:
    whole = host.smi("-L").output
    with host.changed() as simulation:
        simulation.host.fault = "cut"
    cut = host.smi("-L").output
    assert whole.startswith(cut) and 0 < len(cut) < len(whole)
    with host.changed() as simulation:
        simulation.host.fault = "garbage"
    with pytest.raises(UnicodeDecodeError):
        host.smi("-L").output.decode()


def test_no_state_is_a_host_without_a_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, code, _ = answer(["--simulated-state", str(tmp_path / "none"), "-L"])
    assert (code, output[:21]) == (9, b"NVIDIA-SMI has failed")
    assert "simulated nvidia-smi" in capsys.readouterr().err


# -- which cards are shown


@pytest.mark.parametrize("asked, shown", [
    ("all", [0, 1, 2, 3]), ("{2}", [2]), ("{3},{1}", [1, 3]), ("0,2", [0, 2]), ("void", []), ("none", []), ("", [])])
def test_only_the_cards_that_the_environment_names(
        host: SimulatedHost, monkeypatch: pytest.MonkeyPatch, asked: str, shown: list[int]) -> None:
    monkeypatch.setenv("SIMULATED_GPUS_STATE", str(host.path))
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", asked.format(*host.uuids))
    output, code, _ = answer(["-L"])
    if shown:
        assert re.findall(r"GPU-[0-9a-f-]+", output.decode()) == [host.uuids[number] for number in shown]
        assert output.startswith(b"GPU 0:")
    else:
        assert (output, code) == (b"No devices were found\n", 6)


@pytest.mark.parametrize("host", ["mig"], indirect=True)
def test_a_slice_is_shown_below_its_card_alone(host: SimulatedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    part = host.cards[0].slices[1]
    monkeypatch.setenv("SIMULATED_GPUS_STATE", str(host.path))
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", part.uuid)
    lines = answer(["-L"])[0].decode().splitlines()
    assert len(lines) == 2 and part.uuid in lines[1] and "Device  0:" in lines[1]


def test_in_a_container_the_first_process_decides(
        host: SimulatedHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An SSH session has another environment than the container, and what its owner exports there widens nothing.

    The engine appends its own to what the image and Berth say: the last one counts.
    """
    first = tmp_path / "environ"
    monkeypatch.setattr(reading, "FIRST_PROCESS", str(first))
    monkeypatch.setattr(reading, "CONTAINER_STATE", str(host.path))
    monkeypatch.delenv("SIMULATED_GPUS_STATE", raising=False)
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    first.write_text(f"A=b\0NVIDIA_VISIBLE_DEVICES=void\0NVIDIA_VISIBLE_DEVICES={host.uuids[1]}\0")
    assert re.findall(r"GPU-[0-9a-f-]+", answer(["-L"])[0].decode()) == [host.uuids[1]]
    first.write_text("A=b\0")
    assert answer(["-L"])[:2] == (b"No devices were found\n", 6)


def test_one_card_alone_can_be_asked_for(host: SimulatedHost) -> None:
    for name in ("2", host.uuids[2]):
        assert host.smi("-L", "-i", name).lines == [f"GPU 2: NVIDIA A100-SXM4-80GB (UUID: {host.uuids[2]})"]
    assert host.smi("-L", "--id=7").code == 6
