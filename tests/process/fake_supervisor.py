"""A supervisor for the front alone: lease socket and admin socket, with the decisions left to the test.

It runs in a thread with a loop of its own; `told` has all that workers said, in order.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from llamad.errors import ProtocolError
from llamad.wire import lease as wire

M = TypeVar("M")


class Worker:
    """One connection of a worker."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.side = wire.SupervisorSide()
        self.pid = 0
        self.gone = False


class FakeSupervisor:
    """Answers asks by `answers` (model to the function of an Ask); a model without one waits for `send`.

    `converse`: answers what is said of conversations, which else waits, too.
    """

    def __init__(self, folder: Path) -> None:
        self.lease_socket = folder / "lease.sock"
        self.admin_socket = folder / "admin.sock"
        self.policy = wire.Policy()
        self.answers: dict[str, Callable[[wire.Ask], wire.Message]] = {}
        self.converse: Callable[[wire.Where | wire.Lookup | wire.Stop], wire.Message] | None = None
        self.told: list[wire.Message] = []
        self.workers: list[Worker] = []
        self._refused: set[int] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> FakeSupervisor:
        self._thread.start()
        self.listen()
        self._do(self._start(self._serve_admin, self.admin_socket))
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ---- what a test does

    def listen(self) -> None:
        self.lease_socket.unlink(missing_ok=True)
        self._do(self._start(self._serve_lease, self.lease_socket))

    def grant(self, model: str, address: str, *, child: int = 1, token: str = "secret") -> None:
        """Grant every ask for `model` at once."""
        self.answers[model] = lambda ask: wire.Granted(ask.lease, child, model, address, token)

    def refuse(self, model: str, **fields: Any) -> None:
        self.answers[model] = lambda ask: wire.Refused(ask.lease, **fields)

    def send(self, message: wire.Message, worker: Worker | None = None) -> None:
        """Say something to a worker, by default to the first that lives."""
        target = worker or next(worker for worker in self.workers if not worker.gone)
        self._do(self._send(target, wire.encode(message)))

    def change(self, policy: wire.Policy) -> None:
        """As after a reload."""
        self.policy = policy
        for worker in [worker for worker in self.workers if not worker.gone]:
            self._do(self._send(worker, wire.encode(policy)))

    def send_raw(self, data: bytes) -> None:
        self._do(self._send(next(worker for worker in self.workers if not worker.gone), data))

    def drop_workers(self) -> None:
        """Go away, as far as workers can see."""
        self._do(self._drop())

    def heard(self, kind: type[M]) -> list[M]:
        return [message for message in self.told if isinstance(message, kind)]

    def open_leases(self) -> int:
        """Asks that have been neither refused nor released nor cancelled."""
        ends = wire.Release | wire.Cancel | wire.Detach
        over = {message.lease for message in self.told if isinstance(message, ends)}
        begun = {message.lease for message in self.told if isinstance(message, wire.Ask | wire.Where)}
        return len(begun - over - self._refused)

    # ---- the loop's side

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _start(self, serve: Any, path: Path) -> None:
        self._servers.append(await asyncio.start_unix_server(serve, str(path), limit=1 << 20))

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, worker: Worker, data: bytes) -> None:
        worker.writer.write(data)
        await worker.writer.drain()

    async def _drop(self) -> None:
        self.lease_socket.unlink(missing_ok=True)
        for worker in self.workers:
            worker.gone = True
            worker.writer.close()

    async def _serve_lease(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker = Worker(writer)
        self.workers.append(worker)
        try:
            while data := await reader.read(65536):
                for message in worker.side.feed(data):
                    self._take(worker, message)
        except (ConnectionError, ProtocolError) as error:
            self.told.append(wire.Ended(0, "fake", str(error)))
        finally:
            worker.gone = True
            writer.close()

    def _take(self, worker: Worker, message: wire.FromWorker) -> None:
        self.told.append(message)
        if isinstance(message, wire.Hello):
            worker.pid = message.pid
            worker.writer.write(wire.encode(self.policy))
        if isinstance(message, wire.Ask) and message.model in self.answers:
            answer = self.answers[message.model](message)
            if isinstance(answer, wire.Refused):
                self._refused.add(message.lease)
            worker.writer.write(wire.encode(answer))
        if isinstance(message, wire.Where | wire.Lookup | wire.Stop) and self.converse is not None:
            answer = self.converse(message)
            if isinstance(answer, wire.Refused):
                self._refused.add(message.lease)
            worker.writer.write(wire.encode(answer))

    async def _serve_admin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tells what it was asked: `{"request": head, "body": text}`."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.split(b"\r\n")
                length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
                body = await reader.readexactly(length)
                document = {"request": head.decode("latin-1"), "body": body.decode()}
                data = json.dumps(document).encode()
                status = b"404 Not Found" if b"missing" in lines[0] else b"200 OK"
                writer.write(
                    b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (status, len(data), data)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
