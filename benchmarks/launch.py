#!/usr/bin/env python3
"""How long until one can work: a launch of Berth's against `docker run` of the same image, mounts and limits.

    python benchmarks/launch.py [--rounds N] [--many N] [--many-rounds N] [--engine URL] [--image REFERENCE] …

By turns, one at a time and then many at once; the clock runs from the request (Berth's launch form, the start of the
docker command) until SSH greets *and* Jupyter answers, seen by the same prober. What is measured: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Protocol, TypeVar

import docker
import engine
from bare import Bare
from house import USERNAME, House
from probe import NotReady, StartEvents, Target, Timing, log_in, watch
from processes import busy_percent, cpu_seconds, pss_mb
from report import Figure, Goal, finish, ratio

from webapp.domain.container import LABEL_WORKSPACE
from webapp.domain.workspace import Phase

GOALS = {
    "single_ratio": Goal(at_most=1.15),
    "many_ratio": Goal(at_most=1.15),
    "pss_rest_mb": Goal(at_most=220),
    "pss_many_mb": Goal(at_most=220),
}
SINGLE_STEP_SECONDS = 0.01
MANY_STEP_SECONDS = 0.05    # 20 probers in 10 ms steps would take CPU from what they measure
HOUSE_PORTS = 200
SETTLE_SECONDS = 3.0
CPU_SECONDS = 20.0

T = TypeVar("T")


class Unfair(RuntimeError):
    """The two sides do not run the same thing."""


class Side(Protocol):
    """One of the two that are compared."""

    name: str

    def request(self, number: int) -> tuple[Target, float]:
        """Ask for a container; where it will be, and the moment (time.monotonic) of the request."""

    def remove(self, targets: Sequence[Target]) -> None:
        """Take them away again; not timed."""


class BerthSide:
    name = "berth"

    def __init__(self, house: House) -> None:
        self._house = house

    def request(self, number: int) -> tuple[Target, float]:
        workspace_id, began = self._house.launch(f"w{number}")
        return Target(workspace_id, *self._house.ports(workspace_id)), began

    def remove(self, targets: Sequence[Target]) -> None:
        for target in targets:
            self._house.wait_for(target.key, Phase.RUNNING)
        self._house.remove([target.key for target in targets])


class BareSide:
    name = "bare"

    def __init__(self, bare: Bare) -> None:
        self._bare = bare

    def request(self, number: int) -> tuple[Target, float]:
        began = time.monotonic()
        self._bare.run(number)
        return Target(self._bare.name(number), *self._bare.ports(number)), began

    def remove(self, targets: Sequence[Target]) -> None:
        together(len(targets), self._bare.remove)


@dataclass(frozen=True, slots=True)
class Round:
    """Some containers of one side that came up at once."""

    side: str
    targets: tuple[Target, ...]
    timings: tuple[Timing, ...]
    all_ready: float            # seconds from the first request until the last one was ready
    logins: tuple[float, ...]   # seconds of `ssh … true`, afterwards


class Bench:
    """A scratch Berth and its rival on one engine."""

    def __init__(self, house: House, api: docker.APIClient, events: StartEvents) -> None:
        self.house = house
        self.berth = BerthSide(house)
        self._api = api
        self._events = events

    def rival(self, ports: Sequence[int], url: str) -> BareSide:
        """`docker run` made after a first workspace of Berth's, which also warms both sides up.

        Raises:  Unfair.
        """
        first = self.launch(self.berth, 1)
        model = self._api.inspect_container(f"berth-{self.house.instance}-w-{first.targets[0].key}-r1")
        bare = Bare(url, self.house.instance, model, ports=ports, folder=self.house.folder)
        bare.prepare()
        self.berth.remove(first.targets)
        side = BareSide(bare)
        twin = self.launch(side, 1)
        if different := bare.differences(0):
            raise Unfair("\n".join(different))
        side.remove(twin.targets)
        return side

    def launch(self, side: Side, count: int) -> Round:
        step = SINGLE_STEP_SECONDS if count == 1 else MANY_STEP_SECONDS
        line = threading.Barrier(count)

        def one(number: int) -> tuple[Target, float, Timing]:
            line.wait()
            target, began = side.request(number)
            return target, began, watch(target, self._events, began, step_seconds=step)

        try:
            done = together(count, one, when_broken_off=self._events.break_off)
        except NotReady as error:
            raise NotReady(f"{side.name}: {error}\n{self.house.troubles()}") from error
        targets, begins, timings = zip(*done, strict=True)
        logins = together(count, lambda number: log_in(targets[number], USERNAME, self.house.key))
        last = max(began + timing.ready for began, timing in zip(begins, timings, strict=True))
        return Round(side.name, targets, timings, last - min(begins), tuple(logins))

    def by_turns(self, rounds: int, count: int, rival: Side, *, at_end: Callable[[], None] | None = None
                 ) -> dict[str, list[Round]]:
        """Both sides in each round, the one that was second first in the next. `at_end`: while the last of Berth's run.

        A slow minute of the machine so hits both.
        """
        found: dict[str, list[Round]] = {self.berth.name: [], rival.name: []}
        sides: list[Side] = [self.berth, rival]
        for number in range(rounds):
            for side in sides if number % 2 == 0 else sides[::-1]:
                made = self.launch(side, count)
                found[side.name].append(made)
                say(f"round {number + 1} of {rounds}, {count} at once, {side.name}: {made.all_ready:.2f} s")
                if at_end and side is self.berth and number == rounds - 1:
                    at_end()
                side.remove(made.targets)
        return found


def measure(url: str, image: str, *, rounds: int, many: int, many_rounds: int) -> dict[str, Figure]:
    ports = engine.free_ports(HOUSE_PORTS + 2 * many)
    api = docker.APIClient(base_url=url, version="auto")
    events = StartEvents(url, LABEL_WORKSPACE)
    figures: dict[str, Figure] = {"rounds": rounds, "many": many, "many_rounds": many_rounds}
    with House(url, image, ports=ports[:HOUSE_PORTS]) as house:
        bench = Bench(house, api, events)
        rival = bench.rival(ports[HOUSE_PORTS:], url)
        figures["others_busy_percent"] = busy_percent(seconds=SETTLE_SECONDS)
        single = bench.by_turns(rounds, 1, rival)
        figures |= _compared("single", single) | _stages(single)
        time.sleep(SETTLE_SECONDS)
        figures |= _memory("rest", house)
        running: dict[str, Figure] = {}
        at_once = bench.by_turns(many_rounds, many, rival, at_end=lambda: running.update(_with_many_running(house)))
        figures |= _compared("many", at_once) | running
    events.close()
    api.close()
    return figures


def _compared(name: str, rounds: dict[str, list[Round]]) -> dict[str, Figure]:
    berth, bare = ([made.all_ready for made in rounds[side]] for side in (BerthSide.name, BareSide.name))
    return {f"{name}_ratio": ratio(berth, bare), f"{name}_berth_seconds": median(berth),
            f"{name}_bare_seconds": median(bare)}


def _stages(rounds: dict[str, list[Round]]) -> dict[str, Figure]:
    """Where the time of one at a time goes; each is counted from the request."""
    figures: dict[str, Figure] = {}
    for side, made in rounds.items():
        timings = [timing for one in made for timing in one.timings]
        figures[f"single_{side}_created_seconds"] = median(timing.created for timing in timings)
        figures[f"single_{side}_started_seconds"] = median(timing.started for timing in timings)
        figures[f"single_{side}_ssh_seconds"] = median(timing.ssh for timing in timings)
        figures[f"single_{side}_login_seconds"] = median(login for one in made for login in one.logins)
    return figures


def _memory(name: str, house: House) -> dict[str, Figure]:
    return {
        f"pss_{name}_mb": pss_mb(house.processes()),
        f"pss_{name}_agent_mb": pss_mb(house.processes_of("agent")),
        f"pss_{name}_web_mb": pss_mb(house.processes_of("web")),
    }


def _with_many_running(house: House) -> dict[str, Figure]:
    time.sleep(SETTLE_SECONDS)
    before = {name: cpu_seconds(house.processes_of(name)) for name in ("agent", "web")}
    time.sleep(CPU_SECONDS)
    used = {name: cpu_seconds(house.processes_of(name)) - seconds for name, seconds in before.items()}
    percent = {f"cpu_many_{name}_percent": 100 * seconds / CPU_SECONDS for name, seconds in used.items()}
    return {**_memory("many", house), **percent}


def together(count: int, work: Callable[[int], T], *, when_broken_off: Callable[[], None] = lambda: None) -> list[T]:
    """work(0) … work(count - 1), side by side; an error of one of them, or Ctrl-C, once all have ended."""
    with ThreadPoolExecutor(count) as pool:
        try:
            return list(pool.map(work, range(count)))
        except BaseException:
            when_broken_off()   # the others would go on waiting
            raise


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _end_once(number: int, _frame: object) -> None:
    """Ctrl-C or SIGTERM: stop, and let nothing disturb the cleaning up."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    say("stopping and cleaning up …")
    sys.exit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="one at a time, each side (default: 7)")
    parser.add_argument("--many", type=int, default=20, help="how many at once (default: 20)")
    parser.add_argument("--many-rounds", type=int, default=3, help="of many at once, each side (default: 3)")
    parser.add_argument("--engine", help="address of the Docker Engine (default: DOCKER_HOST)")
    parser.add_argument("--image", help="workspace image (default: this checkout's, built if need be)")
    parser.add_argument("--json-only", action="store_true", help="only the last line")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_once)
    url = engine.engine_url(options.engine)
    image = engine.workspace_image(options.image, url)
    figures = measure(url, image, rounds=options.rounds, many=options.many, many_rounds=options.many_rounds)
    return finish("launch", figures, GOALS, json_only=options.json_only)


if __name__ == "__main__":
    sys.exit(main())
