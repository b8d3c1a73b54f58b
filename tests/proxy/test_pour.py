"""A body on the short way: whatever the packets were, the same bytes come out, framed or not, and can be held back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.proxy.connection import PLAIN_CHUNK_BYTES_MAX, Connection, UpstreamBroke, size_of_one_chunk
from llamad.proxy.sink import Sink

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


class FakeTransport:
    """Only notes whether it is read."""

    reading = True

    def writelines(self, parts: Any) -> None:
        pass

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        pass


class Basin:
    """A drain that keeps what comes, and how."""

    def __init__(self) -> None:
        self.body = b""
        self.framed = 0

    def take(self, chunk: bytes) -> None:
        self.body += chunk

    def take_framed(self, chunk: bytes, size: int) -> None:
        line, _, rest = chunk.partition(b"\r\n")
        assert int(line, 16) == size == len(rest) - 2
        self.body += rest[:-2]
        self.framed += 1


@contextmanager
def pouring() -> Iterator[tuple[Connection, Basin, asyncio.Task[None]]]:
    """A connection whose answer has begun, and a task that pours it."""
    loop = asyncio.new_event_loop()
    connection = Connection(loop, lambda _: None)
    connection.connection_made(cast(asyncio.Transport, FakeTransport()))
    connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"")
    connection.data_received(HEAD)
    basin = Basin()
    task = loop.create_task(connection.pour(basin))
    turn(loop)
    try:
        yield connection, basin, task
    finally:
        task.cancel()
        turn(loop)
        loop.close()


def turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.call_soon(loop.stop)
    loop.run_forever()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


pieces = st.lists(
    st.one_of(st.binary(min_size=1, max_size=40), st.just(b"\r\n"), st.just(b"5\r\nab")), max_size=8
)


@given(pieces, st.data())
def test_any_packets_of_any_chunks_give_the_same_body(body: list[bytes], data: st.DataObject):
    wire = b"".join(map(chunk, body)) + END
    cuts = data.draw(st.lists(st.integers(0, len(wire)), max_size=12).map(sorted))
    with pouring() as (connection, basin, task):
        for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
            if start < end:
                connection.data_received(wire[start:end])
        turn(task.get_loop())
        assert basin.body == b"".join(body)
        assert task.done()
        assert connection._whole


def test_packets_that_are_one_chunk_go_on_as_they_are():
    with pouring() as (connection, basin, task):
        for _ in range(5):
            connection.data_received(chunk(b"data: x\n\n"))
        assert basin.framed == 4  # before the first no chunk has ended, so nobody knows where one begins
        assert not task.done()
        connection.data_received(END)
        turn(task.get_loop())
        assert task.done()


def test_a_chunk_within_a_chunk_is_content():
    inner = chunk(b"data: x\n\n")
    with pouring() as (connection, basin, _):
        connection.data_received(chunk(b"first"))
        connection.data_received(b"%x\r\n" % (3 * len(inner)))
        for _ in range(3):
            connection.data_received(inner)
        assert (basin.framed, basin.body) == (0, b"first" + 3 * inner)


def test_what_breaks_off_is_told():
    with pouring() as (connection, basin, task):
        connection.data_received(chunk(b"first"))
        connection.data_received(b"no chunk\r\n")
        turn(task.get_loop())
        assert isinstance(task.exception(), UpstreamBroke)
        assert basin.body == b"first"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n",
        b"0\r\n\r\n",
        b"1\r\nx\r\n",
        b"5\r\nhello",
        b"5\r\nhello\r",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"6\r\nhello\r\n",
        b"4\r\nhello\r\n",
        b"05\r\nhello\r\n",
        b"+5\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5 \r\nhello\r\n",
        b"5;a=b\r\nhello\r\n",
        b"5\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"A\r\nhellohello\r\n",
    ],
)
def test_anything_else_than_one_plain_chunk_is_for_the_parser(data: bytes):
    assert size_of_one_chunk(data) == 0


def test_one_plain_chunk_is_told_whatever_its_size():
    for size in range(2, PLAIN_CHUNK_BYTES_MAX + 1):
        assert size_of_one_chunk(chunk(b"x" * size)) == size
    for size in (0, 1, PLAIN_CHUNK_BYTES_MAX + 1, 1 << 16):
        assert size_of_one_chunk(chunk(b"x" * size)) == 0


@given(st.binary(min_size=2, max_size=PLAIN_CHUNK_BYTES_MAX))
def test_one_plain_chunk_is_told(body: bytes):
    assert size_of_one_chunk(chunk(body)) == len(body)
    parser = httptools.HttpResponseParser(object())
    parser.feed_data(HEAD + chunk(body))


def test_a_full_sink_holds_its_source_until_it_has_room():
    with pouring() as (connection, _, _):
        transport = cast(FakeTransport, connection._transport)
        sink = Sink(lambda _: None, lambda _: None, lambda: None)
        sink.full()
        with sink.fed_by(connection):
            assert not transport.reading
            sink.drained()
            assert transport.reading
            sink.full()
            sink.full()
            assert not transport.reading
        assert transport.reading
        sink.drained()
