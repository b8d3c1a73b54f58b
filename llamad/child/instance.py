"""The role `instance`: load one model, serve it over HTTP, say how it goes.

    start document -> spec -> load (progress to the parent) -> listen -> ready -> serve, statistics -> exit

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
from typing import Any

import uvloop

from llamad import __version__
from llamad.child.app import build_app
from llamad.child.chat import Chat, choose_chat
from llamad.child.conversations import Recordings
from llamad.child.door import Door
from llamad.child.engine_thread import EngineThread
from llamad.child.front import Front, listen
from llamad.child.instance_spec import InstanceSpec, context_size, parse_spec
from llamad.child.link import Link
from llamad.child.reporter import LoadReporter, ready_payload, report_stats
from llamad.child.service import Identity, Service
from llamad.child.titles import Title
from llamad.child.work import Dispatcher
from llamad.clock import SystemClock
from llamad.config.gguf import read_head
from llamad.engine.engine import Engine
from llamad.engine.llama import LlamaBackend, load
from llamad.engine.vocabulary import EngineSettings
from llamad.errors import LlamadError
from llamad.observe import log as logs
from llamad.wire.child import Conversation, State

log = logging.getLogger(__name__)

BUILD = f"llamad-{__version__}"
ENGINE_STOP_S = 5.0
# Decode steps of small models take 2 ms: at the default of 5 ms the engine's thread would wait longer for the
# interpreter than it computes.
SWITCH_INTERVAL_S = 0.0005


def run(link: Link, body: Mapping[str, Any]) -> int:
    """Serve until the parent says exit; the exit status. Raises LlamadError where it cannot."""
    logs.set_up("info", os.environ)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    spec = parse_spec(body)
    title = Title("instance", spec.name)
    # There is nothing to finish yet, and a load cannot be interrupted everywhere.
    link.on_finish(lambda: os._exit(0))
    reporter = LoadReporter(link, title, SystemClock())
    reporter.progressed(0.0)
    backend = load(with_context_size(spec.engine), reporter.progressed)
    chat = choose_chat(spec, backend.facts)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(link, spec, backend, chat, title))


async def _serve(link: Link, spec: InstanceSpec, backend: LlamaBackend, chat: Chat, title: Title) -> int:
    loop = asyncio.get_running_loop()
    dispatcher = Dispatcher(loop)
    engine = Engine(backend, dispatcher.deliver)
    service = Service(engine, dispatcher, Identity(spec.name, spec.engine.path, BUILD), chat, spec.defaults)
    recordings = Recordings(lambda *report: link.send(Conversation(*report)), SystemClock().wall)
    app = build_app(service, backend.piece, SystemClock(), recordings, spec.ping_interval_s)
    door = Door(app, spec.token, recordings)
    link.on_stop(lambda ticket: loop.call_soon_threadsafe(recordings.stop, ticket))
    listener, address = listen(spec.unix_path)

    def ready() -> None:
        title.show("loaded")
        link.send(State("ready", ready_payload(address, engine.facts)))

    front = Front(door, ready)
    runner = EngineThread(engine, lambda: loop.call_soon_threadsafe(front.stop))
    runner.start()
    link.on_finish(lambda: loop.call_soon_threadsafe(front.stop))
    statistics = asyncio.create_task(report_stats(link, engine.stats))
    try:
        await front.serve(sockets=[listener])
    finally:
        title.show("stopping")
        statistics.cancel()
        service.close()
        engine.stop()
        runner.join(ENGINE_STOP_S)
    if runner.failure is not None:
        raise LlamadError(f"cannot go on: {runner.failure}", kind="engine-died")
    if not runner.is_alive():
        backend.close()
    return 0


def with_context_size(settings: EngineSettings) -> EngineSettings:
    """The settings with a context size, where nobody chose one: the model's own, within a bound.

    Raises LlamadError for a file that is no whole GGUF: better words than llama.cpp has for it.
    """
    trained = trained_context(Path(settings.path))
    if settings.n_ctx > 0:
        return settings
    chosen = context_size(trained)
    if chosen < trained:
        log.info("ctx-size not set: using %d of the %d tokens the model was trained with", chosen, trained)
    else:
        log.info("ctx-size not set: using %d tokens", chosen)
    return dataclasses.replace(settings, n_ctx=chosen)


def trained_context(path: Path) -> int:
    """Tokens the model was trained with, by the file's head; 0 if it does not say. Raises LlamadError."""
    try:
        with path.open("rb") as file:
            head = read_head(file, path.stat().st_size)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LlamadError(f"cannot load {path}: {reason}", kind="load-failed") from error
    return head.whole(f"{head.text('general.architecture')}.context_length")
