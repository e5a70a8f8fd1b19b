"""Rules of reading, one by one: what is null, what is a fault, and what users can write into an output."""

from __future__ import annotations

import pytest

from webapp.domain.gpu import Link, LinkKind, MigMode
from webapp.domain.sizes import MIB
from webapp.gpus.parse import cells
from webapp.gpus.parse.facts import CardFacts
from webapp.gpus.parse.failures import classify, device_failures, first_line, invalid_field
from webapp.gpus.parse.listing import read_listing
from webapp.gpus.parse.report import read_report
from webapp.gpus.parse.rows import read_app_rows, read_gpu_rows
from webapp.gpus.parse.topology import read_topology

NOTHING = ["N/A", "[N/A]", "[Not Supported]", "Not Supported", "[Unknown Error]", "ERR!", "", " ",
           "[GPU requires reset]", "[GPU is lost]", "[Insufficient Permissions]", "[Function Not Found]", "[Not Found]",
           "[Some New Word]",
           "[Requested functionality has been deprecated]"]


def row(**figures: str) -> CardFacts:
    names = [name.replace("__", ".") for name in figures]
    (card,) = read_gpu_rows(", ".join(("0", *figures.values())), ["index", *names]).cards
    return card


@pytest.mark.parametrize("cell", NOTHING)
def test_nothing_reported_is_none_not_zero(cell: str) -> None:
    card = row(memory__used=cell, memory__total=cell, utilization__gpu=cell, temperature__gpu=cell, power__draw=cell)
    assert (card.memory_used_bytes, card.memory_total_bytes, card.utilization_percent, card.temperature_celsius,
            card.power_watts) == (None,) * 5
    assert cells.text(cell) is None


def test_zero_is_zero() -> None:
    card = row(memory__used="0 MiB", utilization__gpu="0 %", temperature__gpu="0", power__draw="0.00 W")
    assert (card.memory_used_bytes, card.utilization_percent) == (0, 0)
    assert (card.temperature_celsius, card.power_watts) == (0, 0)


@pytest.mark.parametrize(("cell", "n_bytes"), [
    ("12 MiB", 12 * MIB), ("12", 12 * MIB), ("4095 MB", 4095 * MIB), ("2 GiB", 2048 * MIB), ("1024 KiB", MIB),
    ("-1 MiB", None), ("1.5 GiB", None), ("12 MiB\n5", None), ("12 parsecs", None), ("9" * 40, None), ("٣ MiB", None),
])
def test_memory(cell: str, n_bytes: int | None) -> None:
    assert cells.memory_bytes(cell) == n_bytes


@pytest.mark.parametrize("cell", ["101 %", "-1 %", "5000000000 %", "0x1F", "nan", "inf", "1e3", "7.5 %"])
def test_percentage_that_cannot_be_is_none(cell: str) -> None:
    assert cells.percent(cell) is None


@pytest.mark.parametrize("cell", ["0", "-1", "4294967295", "4194305", "N/A", "12a"])
def test_pid_that_cannot_be_is_none(cell: str) -> None:
    assert cells.pid(cell) is None


def test_first_power_that_is_reported_counts() -> None:
    assert row(power__draw="[N/A]", power__draw__average="[N/A]", power__draw__instant="33.51").power_watts == 33.51
    assert row(power__draw="1.00 W", power__draw__instant="2.00 W").power_watts == 1.0


@pytest.mark.parametrize(("figures", "lost", "reset"), [
    ({"utilization__gpu": "[GPU is lost]"}, "GPU is lost", None),
    ({"pstate": "[GPU requires reset]"}, None, "GPU requires reset"),
    ({"gpu_recovery_action": "Drain and Reset"}, None, "Drain and Reset"),
    ({"gpu_recovery_action": "None"}, None, None),
    ({"gpu_recovery_action": "[N/A]"}, None, None),
    ({"reset_status__reset_required": "Yes"}, None, "Reset"),
    ({"reset_status__reset_required": "No"}, None, None),
])
def test_faults_are_not_just_nothing(figures: dict[str, str], lost: str | None, reset: str | None) -> None:
    card = row(**figures)
    assert (card.lost, card.reset) == (lost, reset)


def test_unified_memory_is_told_from_a_figure_that_could_not_be_read() -> None:
    assert row(memory__total="[N/A]").shares_host_memory
    assert not row(memory__total="[Unknown Error]").shares_host_memory
    assert row(memory__total="[Unknown Error]").unread
    assert not row(memory__total="[N/A]", mig__mode__current="Enabled").shares_host_memory
    assert row(mig__mode__current="Enabled").mig_mode is MigMode.ENABLED


def test_lines_between_the_rows_are_kept_apart() -> None:
    output = "0, 12, 30\r\nWARNING: infoROM is corrupted at gpu 0008:00:00.0\r\n1, 13\r\n2, 14, 31\r\n"
    read = read_gpu_rows(output, ["index", "memory.used", "temperature.gpu"])
    assert [card.index for card in read.cards] == [0, 2]
    assert read.stray == ("WARNING: infoROM is corrupted at gpu 0008:00:00.0", "1, 13")


def test_header_where_none_was_asked_for_is_no_card() -> None:
    assert len(read_gpu_rows("index, memory.used [MiB]\n0, 12 MiB\n", ["index", "memory.used"]).cards) == 1


def test_a_process_may_be_called_anything() -> None:
    (app,) = read_app_rows("GPU-1, 77, 512, a, b\x01, No devices were found", ["gpu_uuid", "pid", "used_gpu_memory",
                                                                               "process_name"]).apps
    assert (app.process.pid, app.process.memory_used_bytes) == (77, 512 * MIB)
    assert app.process.name == "a, b\x01, No devices were found"


def test_bytes_of_other_encodings_and_nul_become_replacement_characters() -> None:
    assert cells.decode(b"\xf8\x00a\n\x1b") == "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}a\n\x1b"


def test_process_name_that_looks_like_the_report_changes_nothing_else() -> None:
    forged = "x<gpu id=\"1\"><uuid>GPU-forged</uuid></gpu> GPU is lost"
    output = ("<nvidia_smi_log><gpu><uuid>GPU-1</uuid><processes><process_info><pid>7</pid>"
              f"<process_name>{forged}</process_name></process_info></processes><fan_speed>9 %</fan_speed></gpu>")
    (card,) = read_report(output).cards
    assert card.uuid == "GPU-1" and card.fan_percent == 9 and card.lost is None
    assert card.processes is not None and card.processes[0].name == forged


def test_report_without_closing_tags_gives_every_card() -> None:
    output = "<gpu><uuid>A<gpu><uuid>B</uuid><product_name>C</gpu><gpu><uuid>D"
    assert [(card.uuid, card.name) for card in read_report(output).cards] == [("A", None), ("B", "C"), ("D", None)]


def test_first_of_two_elements_of_one_name_counts() -> None:
    output = "<gpu><fb_memory_usage><total>1 MiB</total></fb_memory_usage><fb_memory_usage><total>2 MiB</total>"
    assert read_report(output).cards[0].memory_total_bytes == MIB


@pytest.mark.parametrize(("line", "index", "pci"), [
    ("Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot", None, "0000:05:00.0"),
    ("Unable to determine the device handle for GPU0000:CB:00.0: Unknown Error", None, "0000:CB:00.0"),
    ("Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error", 0, "0000:01:00.0"),
    ("Unable to determine the device handle for GPU14: 00000008:0a:00.0: Unknown Error", 14, "00000008:0a:00.0"),
    ("unable to determine the device handle for gpu 0002:00:00.0: Unknown Error", None, "0002:00:00.0"),
])
def test_every_wording_of_a_card_out_of_reach(line: str, index: int | None, pci: str) -> None:
    (failure,) = device_failures([line, line])
    assert (failure.index, failure.pci_bus_id) == (index, pci)


@pytest.mark.parametrize(("output", "exit_code", "code"), [
    ("", 9, "driver_not_loaded"), ("", 12, "nvml_library_not_found"), ("", 15, "gpu_lost"), ("", 127, "smi_missing"),
    ("", 0, None), ("", None, None), ("Segmentation fault", 139, None),
    ("No devices were found", 0, "no_devices"), ("No devices were found", 6, "no_devices"),
    ("Failed to initialize NVML: Something New", 255, "nvml_unknown_error"),
    ("Failed to initialize NVML: Driver/library version mismatch", 18, "driver_library_version_mismatch"),
])
def test_text_first_then_exit_code(output: str, exit_code: int | None, code: str | None) -> None:
    assert classify(output, exit_code) == code


def test_field_that_is_refused_is_named() -> None:
    assert invalid_field('Field "gpu_recovery_action" is not a valid field to query.\n\n') == "gpu_recovery_action"
    assert invalid_field("0, 1, 2") is None


def test_first_line_is_fit_for_a_sentence() -> None:
    assert first_line("\n \n  one\x1b[31m two \nthree") == "one[31m two"
    assert first_line("\n\n") == ""


def test_slices_after_a_lost_card_belong_to_none() -> None:
    output = ("GPU 0: A (UUID: GPU-1)\nUnable to determine the device handle for GPU 0000:21:00.0: GPU is lost\n"
              "  MIG 1g.5gb Device 0: (UUID: MIG-2)\n")
    read = read_listing(output)
    assert read.cards[0].mig_slices == () and len(read.stray) == 2


def test_the_worse_of_two_answers_about_one_pair_counts() -> None:
    assert read_topology("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tPHB\t X \n").links == {(0, 1): Link(LinkKind.PHB)}


def test_closeness() -> None:
    links = [Link(LinkKind.SYS), Link(LinkKind.NODE), Link(LinkKind.PHB), Link(LinkKind.PXB), Link(LinkKind.PIX),
             Link(LinkKind.NVLINK, 1), Link(LinkKind.NVLINK, 12), Link(LinkKind.NVLINK, 18)]
    assert [link.closeness for link in links] == sorted({link.closeness for link in links})
