"""-L, topo -m, and the table for people, which says that it is simulated."""

from __future__ import annotations

import time
from typing import Any

from .facts import plain, process_facts
from .rows import each

_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
_CORES = 32         # of each processor
_LINE = "+" + "-" * 89 + "+\n"
_CARD_LINE = "+-----------------------------------------+------------------------+----------------------+\n"


def list_cards(options: dict[str, str], state: dict[str, Any], cards: list[dict[str, Any]], header: bool
               ) -> tuple[str, int]:
    def lines(card: dict[str, Any], facts: dict[str, str]) -> str:
        slices = card["slices"] if card["mig_mode"] == "Enabled" else []
        return f"GPU {card['index']}: {card['name']} (UUID: {card['uuid']})\n" + "".join(
            f"  MIG {part['profile']:<12}Device {number:>2}: (UUID: {part['uuid']})\n"
            for number, part in enumerate(slices))
    return each(state, cards, lines)


def topo(options: dict[str, str], state: dict[str, Any], cards: list[dict[str, Any]], header: bool
         ) -> tuple[str, int]:
    there = [card for card in cards if card["fault"] not in ("lost", "lost-stops")]
    titles = "".join(f"\tGPU{card['index']}" for card in there) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    if state["host"]["ansi"]:
        titles = f"\t\x1b[4m{titles[1:]}\x1b[0m"

    def line(card: dict[str, Any], facts: dict[str, str]) -> str:
        first = card["numa_node"] * _CORES
        links = "".join(f"\t{_link(state, card['uuid'], other['uuid'])}" for other in there)
        return f"GPU{card['index']}{links}\t{first}-{first + _CORES - 1}\t{card['numa_node']}\t\tN/A\n"
    rows, code = each(state, cards, line)
    return f"{titles}\n{rows}{_LEGEND}", code


def _link(state: dict[str, Any], one: str, other: str) -> str:
    links = state["links"]
    return " X " if one == other else str(links.get(f"{one} {other}") or links.get(f"{other} {one}") or "SYS")


def table(options: dict[str, str], state: dict[str, Any], cards: list[dict[str, Any]], header: bool
          ) -> tuple[str, int]:
    driver, cuda = state["host"]["driver"], state["host"]["cuda"]
    rows, code = each(state, cards, _card_rows)
    processes, _ = each(state, [card for card in cards if not (card["fault"] or "").startswith("lost")], _process_rows)
    return "".join([
        f"{time.ctime():<31}\n", _LINE,
        f"| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {cuda:<8} |\n", _CARD_LINE,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n",
        "|                                         |                        |               MIG M. |\n",
        _CARD_LINE.replace("+", "|", 1).replace("-", "=")[:-2] + "|\n", rows, "\n", _LINE,
        f"| {'Processes:':<87} |\n",
        f"|{'  GPU   GI   CI              PID   Type   Process name                        GPU Memory ':<89}|\n",
        f"|{'        ID   ID                                                               Usage':<89}|\n",
        "|" + "=" * 89 + "|\n", processes or f"|{'  No running processes found':<89}|\n", _LINE,
        "Simulated by Berth: these cards do not exist.\n"]), code


def _card_rows(card: dict[str, Any], facts: dict[str, str]) -> str:
    def shown(source: str, unit: str = "") -> str:
        text = plain(source, "", facts)
        text = {"Unknown Error": "ERR!", "GPU requires reset": "ERR!"}.get(text, text)
        return text + unit if text[:1].isdigit() else text if len(text) <= 4 else "N/A"
    memory = ("Not Supported" if card["memory_mib"] is None
              else f"{shown('@used_mib', 'MiB'):>10} / {shown('@memory_mib', 'MiB'):>9}")
    name = card["name"] if len(card["name"]) <= 24 else card["name"][:21] + "..."
    drawn, limit = (shown(source).partition(".")[0] + "W" for source in ("@power", "@power_limit"))
    watts = f"{drawn:>16} / {limit:>5}".replace("N/AW", "N/A ").replace("ERR!W", "ERR! ")
    return (f"| {card['index']:>3}  {name:<31}On  |   {card['bus_id']} Off | {shown('@uncorrected'):>20} |\n"
            f"| {shown('@fan', '%'):<4} {shown('@temperature', 'C'):>4}  {shown('@pstate'):>4}"
            f"{watts} | {memory:<22} | {shown('@utilization', '%'):>7}      Default |\n"
            f"|{'':41}|{'':24}| {shown('@mig') if card['mig_mode'] is None else card['mig_mode']:>20} |\n{_CARD_LINE}")


def _process_rows(card: dict[str, Any], facts: dict[str, str]) -> str:
    rows = []
    for process in card["processes"]:
        told = process_facts(process, card["fault"])
        name = told["process"] if len(told["process"]) <= 35 else "..." + told["process"][-32:]
        rows.append(f"| {card['index']:>4}   {plain('@gi', '', told):>3}  {plain('@ci', '', told):>3}  "
                    f"{told['pid']:>14} {told['kind']:>6}   {name:<35} "
                    f"{plain('@process_mib', 'MiB', told).replace(' ', ''):>10} |\n")
    return "".join(rows)
