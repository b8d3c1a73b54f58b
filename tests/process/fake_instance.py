"""An instance that plays what the request's body tells it to, and says on stdout what it sees.

    python -m tests.process.fake_instance [unix:/path]

The first line on stdout is its address. Then `request PLAY` for each request, `gone PLAY MONOTONIC_S` for each client that
left before its answer's end. Plays (`{"model": ..., "play": PLAY, ...}`):

    echo        the request as it came, head and body, in an answer with a length
    stream      `events` server-sent events, one each `every_s`, and `[DONE]`
    stall       nothing, ever
    head        the head of a stream, then nothing
    die         SIGKILL to itself before the first byte of an answer
    die-after   `events` events, then SIGKILL to itself;   `half`: in the middle of the last
    cut-plain   an answer that is shorter than its length
    flood       `mib` MiB in chunks as fast as they are taken
    bytes       the bytes of a text with multi-byte characters, one a packet
    garbage     an answer that is no HTTP
    refuse      a 400 with a JSON body
    cors        an answer with opinions of its own about browsers
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any

TEXT = "naïve 漢字 🦙"
EVENT_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nx-instance: fake\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(number: int) -> bytes:
    return b"data: %d\n\n" % number


def say(line: str) -> None:
    print(line, flush=True)


class Gone(Exception):
    """The client left."""


class Call:
    """One request on one connection."""

    def __init__(self, head: bytes, body: bytes, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        self.head = head
        self.body = body
        self.writer = writer
        self.gone = gone
        try:
            self.told: dict[str, Any] = json.loads(body)
        except ValueError:
            self.told = {}
        self.play = str(self.told.get("play", "echo"))

    async def run(self) -> None:
        await getattr(self, "play_" + self.play.replace("-", "_"))()

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        if self.gone.is_set():
            raise Gone

    async def pause(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self.gone.wait(), seconds)
        except TimeoutError:
            return
        raise Gone

    async def play_echo(self) -> None:
        whole = self.head + self.body
        await self.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: %d\r\n"
            b"keep-alive: timeout=5\r\nx-instance: fake\r\n\r\n" % len(whole)
        )
        await self.write(whole)

    async def play_stream(self) -> None:
        await self.write(EVENT_STREAM)
        for number in range(self.told.get("events", 5)):
            await self.pause(self.told.get("every_s", 0.02))
            await self.write(chunk(event(number)))
        await self.pause(0.02)
        await self.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    async def play_stall(self) -> None:
        await self.pause(None)

    async def play_head(self) -> None:
        await self.write(EVENT_STREAM)
        await self.pause(None)

    async def play_die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def play_die_after(self) -> None:
        await self.write(EVENT_STREAM)
        for number in range(self.told.get("events", 5)):
            await self.write(chunk(event(number)))
            await self.pause(0.02)
        if self.told.get("half"):
            await self.write(chunk(b"data: ha"))
            await self.pause(0.02)
        os.kill(os.getpid(), signal.SIGKILL)

    async def play_cut_plain(self) -> None:
        await self.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        self.writer.close()

    async def play_flood(self) -> None:
        await self.write(EVENT_STREAM)
        piece = chunk(b"x" * 65536)
        for _ in range(self.told["mib"] * 16):
            await self.write(piece)
        await self.write(b"0\r\n\r\n")

    async def play_bytes(self) -> None:
        await self.write(EVENT_STREAM)
        for byte in TEXT.encode():
            await self.write(chunk(bytes([byte])))
            await self.pause(0.002)
        await self.write(b"0\r\n\r\n")

    async def play_garbage(self) -> None:
        await self.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        self.writer.close()

    async def play_refuse(self) -> None:
        body = b'{"error":{"message":"no"}}'
        await self.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )

    async def play_cors(self) -> None:
        await self.write(
            b"HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\naccess-control-max-age: 5\r\n"
            b"vary: accept-encoding\r\ncontent-length: 0\r\n\r\n"
        )


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line[15:])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ),
                0,
            )
            body = await reader.readexactly(length)
            await answer(Call(head, body, writer, asyncio.Event()), reader)
    except (asyncio.IncompleteReadError, ConnectionError, Gone):
        pass
    finally:
        writer.close()


async def answer(call: Call, reader: asyncio.StreamReader) -> None:
    say(f"request {call.play}")
    watch = asyncio.create_task(watch_client(call, reader))
    try:
        await call.run()
    except (Gone, ConnectionError):
        say(f"gone {call.play} {time.monotonic()}")
        raise
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def watch_client(call: Call, reader: asyncio.StreamReader) -> None:
    """The front never pipelines, so anything readable is the end of the connection."""
    try:
        if not await reader.read(1):
            call.gone.set()
    except ConnectionError:
        call.gone.set()


async def main() -> None:
    if len(sys.argv) > 1:
        await asyncio.start_unix_server(serve, sys.argv[1].removeprefix("unix:"), limit=1 << 20)
        say(sys.argv[1])
    else:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
        host, port = server.sockets[0].getsockname()
        say(f"{host}:{port}")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
