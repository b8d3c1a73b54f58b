"""The instance's real HTTP front over a toy engine that says only what a test has it say."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence

import uvloop

from llamad.api.generation import Generation
from llamad.child.app import build_app
from llamad.child.chat import choose_chat
from llamad.child.chat_options import ChatOptions
from llamad.child.conversations import Recordings
from llamad.child.door import Door
from llamad.child.front import Front, listen
from llamad.child.service import Identity, Service
from llamad.child.work import Dispatcher
from llamad.clock import SystemClock
from llamad.engine.vocabulary import (
    EngineStats,
    Failed,
    Finished,
    GenerateRequest,
    ModelFacts,
    Output,
    SlotView,
    Text,
    Timings,
)
from llamad.errors import LlamadError

TOKEN = "the-token"
BODY_BYTES_MAX = 100_000
N_CTX = 1000
PING_INTERVAL_S = 30


class ToyEngine:
    """Tokens are bytes. A prompt over the context is refused on submit, as the real engine does it."""

    asleep = False
    idle = True
    facts = ModelFacts("toy", "a toy", 1, 1, N_CTX, N_CTX, N_CTX, 256, 1, 2, None, "", "", False)

    def __init__(self, deliver: Callable[[list[Output]], None]) -> None:
        self.deliver = deliver
        self.submitted: list[GenerateRequest] = []
        self.cancelled: list[int] = []

    def submit(self, request: GenerateRequest) -> None:
        self.submitted.append(request)
        if len(request.tokens) >= N_CTX:
            error = LlamadError("cannot fit it", kind="exceed-context-size", status=400)
            self.deliver([Failed(request.id, error)])

    def cancel(self, id: int) -> None:
        self.cancelled.append(id)

    def say(self, request: GenerateRequest, *texts: str, reason: str = "") -> None:
        """One step's outputs for one request."""
        outputs: list[Output] = [Text(request.id, text) for text in texts]
        if reason:
            outputs.append(Finished(request.id, reason, "", Timings(len(request.tokens), 0, 1, 2, 3), 0))
        self.deliver(outputs)

    def stats(self) -> EngineStats:
        return EngineStats(*[0] * 11)

    def slots(self) -> list[SlotView]:
        return [SlotView(0, "idle", N_CTX, None, 0, 0, 0)]

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        return list(text.encode())

    def detokenize(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode(errors="replace")


class RunningFront:
    """A front on a thread of its own. Leaving stops it and fails if it does not end."""

    def __enter__(self) -> RunningFront:
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        assert self.ended(10)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def connect(self) -> socket.socket:
        host, port = self.address.split(":")
        return socket.create_connection((host, int(port)), timeout=10)

    def in_loop(self, call: Callable[..., object], *arguments: object) -> None:
        """Call something that belongs to the loop's thread."""
        self._loop.call_soon_threadsafe(call, *arguments)

    def stop(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._front.stop)
        except RuntimeError:
            pass  # It has stopped already.

    def ended(self, within_s: float) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        dispatcher = Dispatcher(self._loop)
        self.engine = ToyEngine(dispatcher.deliver)
        chat = choose_chat(ChatOptions(), self.engine.facts, lambda text: None)
        service = Service(self.engine, dispatcher, Identity("toy", "/toy.gguf", "b1"), chat, Generation())
        self.reports: list[tuple[int, str, int]] = []
        self.recordings = Recordings(lambda *report: self.reports.append(report), SystemClock().wall)
        app = build_app(
            service, lambda token: bytes([token]), SystemClock(), self.recordings, PING_INTERVAL_S
        )
        listener, self.address = listen()
        self._front = Front(Door(app, TOKEN, self.recordings, BODY_BYTES_MAX), self._started.set)
        await self._front.serve(sockets=[listener])
        service.close()
