"""The agent: exactly one process makes what people want so, and writes down what it saw.

Threads: one loop per host with its pool of workers, one listener per host for engine events, one that looks at its
cards; one for the doorbell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import structlog

from webapp.agent import cards
from webapp.agent.context import HostContext, utc_now
from webapp.agent.exclusion import alone, alone_on
from webapp.agent.inventory import Watch
from webapp.agent.outage import Outage
from webapp.agent.reconciler import HostLoop
from webapp.engines import Engine, open_engine
from webapp.engines.registries import RegistryAccess
from webapp.errors import EngineError
from webapp.key_files import check_registry_auth, seal_of
from webapp.services import observations
from webapp.services.operations import expire, requeue_running, sweep  # by name: webapp.agent.operations is ours
from webapp.settings import Settings, house_rules
from webapp.store.doorbell import open_doorbell
from webapp.store.reads import agent as reads
from webapp.store.session import Store

log = structlog.get_logger(__name__)

ALIVE_SECONDS = 5.0             # between two signs of life
AGAIN_SECONDS = 2.0             # before listening again after the engine went away, or after an unforeseen error
EVENTS_OVERLAP = timedelta(seconds=5)
BEGINNINGS = frozenset({"create", "start"})     # mostly our own, and a worker is at it
FINISH_SECONDS = 3.0            # for workers to end after a stop; what they were at is picked up by the next agent

EngineOpener = Callable[..., Engine]


def run(settings: Settings, stop: threading.Event, *, opener: EngineOpener = open_engine) -> None:
    """Run until `stop` is set.

    Raises:  AgentAlreadyRuns: another one holds the lock. SettingsError. OtherVersion: the database was upgraded, or an
             older one was put back, before or while it ran; nothing was written since.
    """
    check_registry_auth(settings)
    store, outage = Store(settings.database_url, seal=seal_of(settings)), Outage(stop)
    with alone(settings.state_dir), alone_on(store) as holds:
        with store.write() as session:
            epoch = observations.next_epoch(session, now=utc_now())
        with store.write() as session:
            requeue_running(session)
        contexts = _contexts(settings, store, epoch, opener, stop, outage)
        log.info("agent.started", epoch=epoch, hosts=len(contexts))
        _run_threads(store, contexts, stop, outage, epoch, holds)
    store.close()
    log.info("agent.stopped", epoch=epoch)
    if outage.refusal is not None:
        raise outage.refusal


def _contexts(
    settings: Settings, store: Store, epoch: int, opener: EngineOpener, stop: threading.Event, outage: Outage
) -> list[HostContext]:
    registries = RegistryAccess(settings.registry_auth, settings.registry_mirror)
    with store.read() as session:
        hosts = reads.hosts(session)
    return [
        HostContext(
            host_id=host.id, host_name=host.name, store=store, instance=settings.instance, epoch=epoch,
            engine=opener(host.engine_url, instance=settings.instance, host=host.name, registries=registries),
            house=house_rules(settings), volume_roots=settings.volume_roots, bind_address=settings.workspace_bind,
            stopping=stop.is_set, outage=outage, cards=cards.of_this_machine(settings),
        )
        for host in hosts
    ]


def _run_threads(
    store: Store, contexts: list[HostContext], stop: threading.Event, outage: Outage, epoch: int,
    holds: Callable[[], bool],
) -> None:
    loops = [HostLoop(context, stop) for context in contexts]
    for loop in loops:
        _in_background(f"host-{loop.context.host_name}", loop.run)
        _in_background(f"events-{loop.context.host_name}", partial(_again, partial(_listen, loop), stop, outage))
        _in_background(f"cards-{loop.context.host_name}", partial(Watch(loop.context).run, stop))
    _in_background("doorbell", partial(_again, partial(_ring, store, loops, stop), stop, outage))
    while not stop.wait(ALIVE_SECONDS):
        _live(store, stop, outage, epoch, holds)
    for loop in loops:
        loop.wake()
        loop.context.cards.look_again.set()
    for loop in loops:
        loop.finish(FINISH_SECONDS)
    for context in contexts:
        context.engine.close()
        context.cards.close()


def _in_background(name: str, work: Callable[[], None]) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


def _again(work: Callable[[], None], stop: threading.Event, outage: Outage) -> None:
    """For threads that must not end before the agent does, whatever happens to a disk or an engine."""
    while not stop.is_set():
        try:
            work()
        except Exception as error:
            if not outage.explains(error):
                log.exception("agent.thread_failed", thread=threading.current_thread().name)
        stop.wait(AGAIN_SECONDS)


def _live(store: Store, stop: threading.Event, outage: Outage, epoch: int, holds: Callable[[], bool]) -> None:
    """The sign of life. A database that cannot be written is no reason to end: what runs is still looked after."""
    try:
        with store.write() as session:
            if not (holds() and observations.still_alive(session, epoch=epoch, now=utc_now())):
                log.error("agent.replaced", epoch=epoch)
                stop.set()
            expire(session, now=utc_now())
            sweep(session, now=utc_now())
        outage.is_over()
    except Exception as error:
        if not outage.explains(error):
            log.exception("agent.no_sign_of_life", epoch=epoch)


def _ring(store: Store, loops: list[HostLoop], stop: threading.Event) -> None:
    doorbell = open_doorbell(store)
    rang = True         # what was asked for after a loop's first look and before this rang for nobody
    try:
        while not stop.is_set():
            if rang:
                for loop in loops:
                    loop.wake()
            rang = doorbell.wait(timeout_seconds=1.0)
    finally:
        doorbell.close()


def _listen(loop: HostLoop) -> None:
    """Events of the engine: hints that something changed. What was missed is found by the next pass."""
    context = loop.context
    try:
        for event in context.engine.events(context.now() - EVENTS_OVERLAP):
            if event.action == "oom":
                loop.out_of_memory(event.container_name, event.at)
            else:
                loop.something_happened(ended=event.action not in BEGINNINGS)
    except EngineError as error:
        log.debug("engine.events_ended", host=context.host_name, detail=str(error))
    loop.wake()
