"""The role `instance`: load one model, serve it over HTTP, say how it goes.

    start document -> spec -> fit -> load (progress to the parent) -> listen -> ready -> serve, statistics -> exit
                                                                                 sleep <-> wake

The event loop has the main thread, the engine one of its own; they meet in the dispatcher and in the engine's inbox.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from llamad import BUILD_INFO
from llamad.child.app import build_app
from llamad.child.chat import choose_chat
from llamad.child.conversations import Recordings
from llamad.child.door import Door
from llamad.child.fitting import fitted
from llamad.child.front import Front, listen
from llamad.child.instance_spec import InstanceSpec, parse_spec
from llamad.child.link import Link
from llamad.child.own_rules import own_defaults
from llamad.child.reporter import Reporter, report_stats
from llamad.child.resident import Resident
from llamad.child.service import Identity, Service
from llamad.child.sleeper import Sleeper
from llamad.child.slot_files import SlotFiles
from llamad.child.titles import Title
from llamad.child.work import Dispatcher
from llamad.clock import SystemClock
from llamad.engine import ggml, llama, loading
from llamad.engine.complaints import Complaints, failure
from llamad.errors import LlamadError, OutOfMemoryError
from llamad.exit_status import EXIT_CLEAN, EXIT_INTERNAL
from llamad.observe import log as logs
from llamad.wire.child import EXIT_OUT_OF_MEMORY, Conversation, State

log = logging.getLogger(__name__)

EXIT_ABORTED = 1
# Decode steps of small models take 2 ms: at the default of 5 ms the engine's thread would wait longer for the
# interpreter than it computes.
SWITCH_INTERVAL_S = 0.0005


def run(link: Link, body: Mapping[str, Any]) -> int:
    """Serve until the parent says exit; the exit status. Raises LlamadError where it cannot."""
    logs.set_up("info", os.environ)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    spec = parse_spec(body)
    reporter = Reporter(link, Title("instance", spec.name), SystemClock())
    # There is nothing to finish yet, and a load cannot be interrupted everywhere.
    link.on_finish(lambda: os._exit(0))
    reporter.progressed(0.0)
    spec = dataclasses.replace(spec, engine=fitted(spec.engine, body))
    with (
        Complaints(llama.log) as complaints,
        ggml.before_abort(lambda words: _die(link, words, complaints.reason)),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_serve(link, spec, reporter))


async def _serve(link: Link, spec: InstanceSpec, reporter: Reporter) -> int:
    loop = asyncio.get_running_loop()
    dispatcher = Dispatcher(loop)

    def load() -> llama.LlamaBackend:
        return loading.load(spec.engine, reporter.progressed)

    def ready() -> None:
        reporter.ready(address, resident.facts, resident.held())

    def stop() -> None:
        front.stop()

    def finish() -> None:
        if sleeper.loading:
            os._exit(0)
        loop.call_soon_threadsafe(stop)

    resident = Resident(
        load(),
        dispatcher.deliver,
        lambda: loop.call_soon_threadsafe(stop),
        spec.keeping,
        spec.prefill_budget,
    )
    identity = Identity(spec.name, spec.engine.path, BUILD_INFO)
    chat = choose_chat(spec.chat, resident.facts, resident.control_token)
    service = Service(resident, dispatcher, identity, chat, own_defaults(spec))
    sleeper = Sleeper(resident, service, reporter, load, ready)
    recordings = Recordings(lambda *report: link.send(Conversation(*report)), SystemClock().wall)
    app = build_app(
        service,
        resident.piece,
        SystemClock(),
        recordings,
        spec.ping_interval_s,
        spec.endpoints,
        spec.embd_normalize,
        spec.suffix_first,
        slot_files(spec),
    )
    door = Door(app, spec.token, recordings)
    link.on_stop(lambda ticket: loop.call_soon_threadsafe(recordings.stop, ticket))
    listener, address = listen(spec.unix_path)
    front = Front(door, ready)
    orders = asyncio.create_task(sleeper.run())
    orders.add_done_callback(lambda _: stop())
    statistics = asyncio.create_task(report_stats(link, resident.stats, SystemClock()))
    link.on_nap(lambda order: loop.call_soon_threadsafe(sleeper.take, order))
    link.on_finish(finish)
    try:
        await front.serve(sockets=[listener])
    finally:
        if sleeper.loading:
            leave_load_behind(link)
        reporter.stopping()
        statistics.cancel()
        service.close()
        death = resident.failure
        resident.close()
    if orders.done():
        orders.result()
    if death is not None:
        raise LlamadError(f"cannot go on: {death}", kind="engine-died")
    return 0


def slot_files(spec: InstanceSpec) -> SlotFiles | None:
    """Where slots are saved, if anywhere. Raises LlamadError where that is no directory."""
    if not spec.slot_save_path:
        return None
    engine = spec.engine
    settings = f"{engine.cache_type_k} {engine.cache_type_v} {engine.swa_full}"
    return SlotFiles(Path(spec.slot_save_path), Path(engine.path), settings)


def leave_load_behind(link: Link) -> NoReturn:
    """End the process now, as a load cannot be interrupted; what was raised before is told, as nobody else will."""
    error = sys.exception()
    if not isinstance(error, Exception):
        os._exit(EXIT_CLEAN)
    log.error("cannot go on", exc_info=error)
    message = f"cannot go on: {type(error).__name__}: {error}"
    link.send(State("failed", {"kind": "internal", "message": message}))
    os._exit(EXIT_INTERNAL)


def _die(link: Link, words: str, before: str) -> None:
    """ggml is about to end the process: say why, in its place. `words` begin with a path of whoever built it."""
    words = words.rpartition("/")[2]
    error = failure(f"cannot go on: llama.cpp gave up: {words}; before that: {before}", kind="engine-died")
    log.error("%s", error.message)
    link.send(State("failed", {"kind": error.kind, "message": error.message}))
    os._exit(EXIT_OUT_OF_MEMORY if isinstance(error, OutOfMemoryError) else EXIT_ABORTED)
