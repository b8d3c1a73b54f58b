"""The upstream client against real sockets: reuse, dead connections, framing, back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from llamad.proxy.connection import HEAD_BYTES_MAX, HIGH_WATER_BYTES, Connection, UpstreamBroke
from llamad.proxy.pool import IDLE_PER_ADDRESS_MAX, Pool

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Upstream:
    """A server that counts its connections and answers each request with `answers`, the last for ever."""

    def __init__(self, *answers: bytes, close_after: int | None = None) -> None:
        self.answers = list(answers)
        self.close_after = close_after
        self.connections: list[asyncio.StreamWriter] = []
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        served = 0
        try:
            while served != self.close_after:
                await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                served += 1
                writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def run(serve: Serve, scenario: Callable[[Pool, str], Awaitable[Any]]) -> Any:
    """A scenario on a loop of the kind that workers use, with a server of its own."""

    async def main() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        pool = Pool()
        try:
            return await asyncio.wait_for(scenario(pool, f"{host}:{port}"), 10)
        finally:
            pool.close()
            server.close()

    return uvloop.run(main())


async def body_of(connection: Connection) -> bytes:
    chunks = []
    while (chunk := await connection.next_chunk()) is not None:
        chunks.append(chunk)
    return b"".join(chunks)


async def fetch(pool: Pool, address: str) -> bytes:
    connection = await pool.exchange(address, REQUEST, b"")
    try:
        return await body_of(connection)
    finally:
        pool.give_back(address, connection)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_clean_connection_is_used_again():
    upstream = Upstream(OK)

    async def scenario(pool: Pool, address: str) -> None:
        for _ in range(5):
            assert await fetch(pool, address) == b"ok"
        assert len(upstream.connections) == 1
        assert pool.idle_count == 1

    run(upstream.serve, scenario)


def test_the_end_of_an_idle_connection_removes_it():
    upstream = Upstream(OK)

    async def scenario(pool: Pool, address: str) -> None:
        await fetch(pool, address)
        upstream.connections[0].close()
        await until(lambda: pool.idle_count == 0)
        assert await fetch(pool, address) == b"ok"
        assert len(upstream.connections) == 2

    run(upstream.serve, scenario)


def test_a_request_that_crosses_the_end_of_its_connection_is_sent_once_more():
    upstream = Upstream(OK, close_after=1)

    async def scenario(pool: Pool, address: str) -> None:
        connection = await pool.exchange(address, REQUEST, b"")
        await body_of(connection)
        pool.give_back(address, connection)
        assert pool.idle_count == 1
        assert await fetch(pool, address) == b"ok"
        assert (upstream.requests, len(upstream.connections)) == (2, 2)

    run(upstream.serve, scenario)


def test_a_fresh_connection_that_breaks_is_not_tried_again():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        attempts.append(1)
        writer.close()

    attempts: list[int] = []

    async def scenario(pool: Pool, address: str) -> None:
        with pytest.raises(UpstreamBroke) as caught:
            await fetch(pool, address)
        assert not caught.value.began
        assert len(attempts) == 1

    run(serve, scenario)


def test_a_reused_connection_that_breaks_within_its_answer_is_not_tried_again():
    upstream = Upstream(OK, b"HTTP/1.1 200 OK\r\nx-half", close_after=2)

    async def scenario(pool: Pool, address: str) -> None:
        await fetch(pool, address)
        with pytest.raises(UpstreamBroke) as caught:
            await fetch(pool, address)
        assert caught.value.began
        assert upstream.requests == 2

    run(upstream.serve, scenario)


def test_nobody_at_the_address():
    async def scenario(pool: Pool, address: str) -> None:
        with pytest.raises(UpstreamBroke, match="connection refused"):
            await fetch(pool, "127.0.0.1:1")
        with pytest.raises(UpstreamBroke, match="no such file"):
            await fetch(pool, "unix:/nonexistent/socket")

    run(Upstream(OK).serve, scenario)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n", b"ok!"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\nx: 1\r\n\r\n" + OK, b"ok"),
        (OK, b"ok"),
    ],
)
def test_framings_that_leave_the_connection_clean(answer, body):
    async def scenario(pool: Pool, address: str) -> None:
        assert await fetch(pool, address) == body
        assert pool.idle_count == 1

    run(Upstream(answer).serve, scenario)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nother",
    ],
    ids=["until the end", "close", "1.0", "surplus"],
)
def test_connections_that_are_not_used_again(answer):
    async def scenario(pool: Pool, address: str) -> None:
        assert await fetch(pool, address) == b"ok"
        assert pool.idle_count == 0

    run(Upstream(answer, close_after=1).serve, scenario)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * HEAD_BYTES_MAX,
    ],
    ids=["short", "no last chunk", "no HTTP", "endless head"],
)
def test_answers_that_are_broken(answer):
    async def scenario(pool: Pool, address: str) -> None:
        with pytest.raises(UpstreamBroke) as caught:
            await fetch(pool, address)
        assert caught.value.began
        assert pool.idle_count == 0

    run(Upstream(answer, close_after=1).serve, scenario)


def test_an_exchange_given_back_early_is_hung_up():
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            await reader.read()
        except ConnectionError:
            pass
        left.set()
        writer.close()

    async def scenario(pool: Pool, address: str) -> None:
        connection = await pool.exchange(address, REQUEST, b"")
        pool.give_back(address, connection)
        await left.wait()
        assert pool.idle_count == 0

    run(serve, scenario)


def test_a_cancelled_wait_hangs_up():
    left = asyncio.Event()
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        try:
            await reader.read()
        except ConnectionError:
            pass
        left.set()
        writer.close()

    async def scenario(pool: Pool, address: str) -> None:
        task = asyncio.create_task(fetch(pool, address))
        await asked.wait()
        task.cancel()
        await left.wait()

    run(serve, scenario)


def test_unread_chunks_stop_the_reading():
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (64 << 20))
        for _ in range(64):
            writer.write(b"x" * (1 << 20))
            await writer.drain()
            sent += 1
        writer.close()

    async def scenario(pool: Pool, address: str) -> None:
        connection = await pool.exchange(address, REQUEST, b"")
        await until(lambda: connection._paused)
        # One read may go past the mark.
        assert connection._buffered_bytes <= 2 * HIGH_WATER_BYTES
        held_back = sent
        assert held_back < 32
        assert len(await body_of(connection)) == 64 << 20
        pool.give_back(address, connection)

    run(serve, scenario)


def test_idle_connections_have_a_limit():
    async def scenario(pool: Pool, address: str) -> None:
        open_ones = [await pool.exchange(address, REQUEST, b"") for _ in range(IDLE_PER_ADDRESS_MAX + 5)]
        for connection in open_ones:
            await body_of(connection)
            pool.give_back(address, connection)
        assert pool.idle_count == IDLE_PER_ADDRESS_MAX
        pool.close()
        await until(lambda: pool.idle_count == 0)

    run(Upstream(OK).serve, scenario)
