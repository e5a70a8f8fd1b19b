"""-q -x: the XML document, in the order and with the indentation of nvsmi_device_v13.dtd."""

from __future__ import annotations

import time
from typing import Any

from .facts import plain, process_facts, tokens
from .reading import Refused
from .rows import each
from .tables import BAD_ARGUMENT, CONFUSED, XML


def document(options: dict[str, str], state: dict[str, Any], cards: list[dict[str, Any]], header: bool
             ) -> tuple[str, int]:
    if "--xml-format" not in options:
        raise Refused(BAD_ARGUMENT, CONFUSED)     # the report for people has no reader in Berth
    body, code = each(state, cards, _card)
    host = "".join(_leaf(1, tag, value) for tag, value in (
        ("timestamp", time.ctime()), ("driver_version", state["host"]["driver"]),
        ("cuda_version", state["host"]["cuda"]), ("attached_gpus", cards[0]["count"])))
    return ('<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
            f"{host}{body}</nvidia_smi_log>\n"), code


def _card(card: dict[str, Any], facts: dict[str, str]) -> str:
    lines: list[str] = []
    opened: list[str] = []
    for line in [*XML.strip().splitlines(), ":"]:       # the last one closes what is open
        if line.startswith("*"):
            _go(lines, opened, [])
            lines.append({"*mig_devices": _mig_devices, "*processes": _processes}[line](card))
            continue
        where, _, leaves = line.partition(":")
        _go(lines, opened, where.split("/") if where else [])
        lines += [_leaf(len(opened) + 2, names[0], plain(source, unit, facts)) for names, unit, source in
                  tokens(leaves)]
    return f'\t<gpu id="{card["bus_id"]}">\n{"".join(lines)}\t</gpu>\n\n'


def _go(lines: list[str], opened: list[str], path: list[str]) -> None:
    """Close and open elements until `path` is open."""
    while opened != path[:len(opened)]:
        lines.append(_tabs(len(opened) + 1) + f"</{opened.pop()}>\n")
    for tag in path[len(opened):]:
        opened.append(tag)
        lines.append(_tabs(len(opened) + 1) + f"<{tag}>\n")


def _mig_devices(card: dict[str, Any]) -> str:
    if card["mig_mode"] != "Enabled":
        return "\t\t<mig_devices>\n\t\t\tNone\n\t\t</mig_devices>\n"
    return "\t\t<mig_devices>\n" + "".join(map(_mig_device, range(len(card["slices"])), card["slices"])
                                           ) + "\t\t</mig_devices>\n"


def _mig_device(number: int, part: dict[str, Any]) -> str:
    attributes = {"multiprocessor_count": part["multiprocessors"], "copy_engine_count": 1, "encoder_count": 0,
                  "decoder_count": 1, "ofa_count": 0, "jpg_count": 0}
    memory = {"total": part["memory_mib"], "reserved": 0, "used": part["used_mib"],
              "free": part["memory_mib"] - part["used_mib"]}
    bar1 = {"total": 32767, "used": 0, "free": 32767}
    return _element(3, "mig_device", "".join([
        _leaf(4, "index", number), _leaf(4, "gpu_instance_id", part["gpu_instance"]),
        _leaf(4, "compute_instance_id", part["compute_instance"]),
        _element(4, "device_attributes", _element(5, "shared", _leaves(6, attributes))),
        _element(4, "ecc_error_count", _element(5, "volatile_count", _leaf(6, "sram_uncorrectable", 0))),
        _element(4, "fb_memory_usage", _leaves(5, memory, " MiB")),
        _element(4, "bar1_memory_usage", _leaves(5, bar1, " MiB"))]))


def _processes(card: dict[str, Any]) -> str:
    rows = []
    for process in card["processes"]:
        facts = process_facts(process, card["fault"])
        rows.append(_element(3, "process_info", _leaves(4, {
            "gpu_instance_id": plain("@gi", "", facts), "compute_instance_id": plain("@ci", "", facts),
            "pid": facts["pid"], "type": facts["kind"], "process_name": plain("@process", "", facts),
            "used_memory": plain("@process_mib", "MiB", facts)})))
    return _element(2, "processes", "".join(rows))


def _element(depth: int, tag: str, content: str) -> str:
    return f"{_tabs(depth)}<{tag}>\n{content}{_tabs(depth)}</{tag}>\n"


def _leaves(depth: int, values: dict[str, Any], unit: str = "") -> str:
    return "".join(_leaf(depth, tag, f"{value}{unit}") for tag, value in values.items())


def _leaf(depth: int, tag: str, value: Any) -> str:
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"{_tabs(depth)}<{tag}>{text}</{tag}>\n"


def _tabs(depth: int) -> str:
    return "\t" * depth
