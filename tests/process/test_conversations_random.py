"""Conversations at random, through a real front and a real instance's front: clients leave anywhere, come back anywhere.

Whatever happens, who reads from byte N gets what the whole output has from byte N on, or is told why not.
LLAMAD_FUZZ_ROUNDS and LLAMAD_FUZZ_SEED make longer runs, and others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import pytest

from llamad.engine.vocabulary import GenerateRequest
from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.front_kit import TOKEN, RunningFront
from tests.process.proxy_harness import MODEL, Client, Front, whole_front

ROUNDS = int(os.environ.get("LLAMAD_FUZZ_ROUNDS", "25"))
SEED = int(os.environ.get("LLAMAD_FUZZ_SEED", "5"))
WORDS = ("one ", "naïve ", "漢字", "🦙", "\n\n", "data: x", "", " " * 300)


class Desk:
    """As much of the supervisor as it takes: which ticket an id has."""

    def __init__(self, supervisor: FakeSupervisor, running: RunningFront) -> None:
        self._running = running
        self._tickets: dict[str, int] = {}
        self._last = 0
        supervisor.answers[MODEL] = self.asked
        supervisor.converse = self.converse

    def asked(self, ask: lease.Ask) -> lease.Message:
        self._last += 1
        self._stop(ask.conversation)
        self._tickets[ask.conversation] = self._last
        return self._granted(ask.lease, self._last)

    def converse(self, message: lease.Where | lease.Lookup | lease.Stop) -> lease.Message:
        match message:
            case lease.Stop():
                self._stop(message.conversation)
                return lease.Stopped(message.lease)
            case lease.Lookup():
                known = [id for id in message.conversations if id in self._tickets]
                address = self._running.address
                places = [lease.Place(id, 1, False, self._tickets[id], address, TOKEN) for id in known]
                return lease.Found(message.lease, places)
        ticket = self._tickets.get(message.conversation)
        if ticket is None:
            return lease.Refused(message.lease, "conversation-not-found", 404, "cannot find it")
        return self._granted(message.lease, ticket)

    def _granted(self, number: int, ticket: int) -> lease.Granted:
        return lease.Granted(number, 1, MODEL, self._running.address, TOKEN, ticket=ticket)

    def _stop(self, id: str) -> None:
        ticket = self._tickets.pop(id, 0)
        if ticket:
            self._running.in_loop(self._running.recordings.stop, ticket)


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Front, RunningFront, FakeSupervisor]]:
    with RunningFront() as running, whole_front() as (front, supervisor):
        Desk(supervisor, running)
        yield front, running, supervisor
        log = front.log_text()
        assert "Traceback" not in log, log[-4000:]


def begin(front: Front, id: str) -> Client:
    client = Client(front.port)
    body = json.dumps(
        {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    ).encode()
    client.send("POST", "/v1/chat/completions", body, x_conversation_id=id)
    return client


def follow(front: Front, id: str, offset: int) -> Client:
    client = Client(front.port)
    client.send("GET", f"/v1/stream?conv_id={id}&from={offset}")
    return client


def submitted(running: RunningFront, before: int) -> GenerateRequest:
    wait_until(lambda: len(running.engine.submitted) > before)
    return running.engine.submitted[before]


def test_whoever_reads_gets_the_rest_of_the_same_bytes(
    parts: tuple[Front, RunningFront, FakeSupervisor],
) -> None:
    front, running, _ = parts
    random = Random(SEED)
    for number in range(ROUNDS):
        id = f"c{random.randint(0, 3)}"
        with ExitStack() as stack:
            before = len(running.engine.submitted)
            first = begin(front, id)
            request = submitted(running, before)
            readers: list[tuple[int, Client]] = []
            stays = random.random() < 0.5
            if not stays:
                first.socket.close()
            for _ in range(random.randint(1, 12)):
                running.engine.say(request, *random.choices(WORDS, k=random.randint(1, 3)))
                if random.random() < 0.3:
                    readers.append((0, stack.enter_context(follow(front, id, 0))))
                if readers and random.random() < 0.2:
                    readers.pop(random.randrange(len(readers)))[1].socket.close()
            running.engine.say(request, "end", reason="stop")
            whole = answer(stack.enter_context(follow(front, id, 0)))
            assert whole.endswith(b"data: [DONE]\n\n"), f"seed {SEED}, round {number}"
            for offset, client in readers:
                assert answer(client) == whole[offset:]
            if stays:
                assert answer(first) == whole
                first.socket.close()
            for offset in {0, len(whole), *(random.randint(0, len(whole)) for _ in range(4))}:
                assert answer(stack.enter_context(follow(front, id, offset))) == whole[offset:]
            status, error, _ = stack.enter_context(follow(front, id, len(whole) + 1)).error()
            assert (status, error["kind"]) == (400, "bad-offset")
        if random.random() < 0.5:
            stop(front, id)


def answer(client: Client) -> bytes:
    status, headers, body = client.answer()
    assert status == 200, body
    assert headers["content-type"].startswith("text/event-stream")
    return body


def stop(front: Front, id: str) -> None:
    with Client(front.port) as client:
        client.send("DELETE", f"/v1/stream?conv_id={id}")
        assert client.head()[0] == 204
        client.send("GET", f"/v1/stream?conv_id={id}")
        assert client.answer()[0] == 404
        client.send("POST", "/v1/streams/lookup", json.dumps({"conversation_ids": [id]}).encode())
        assert client.answer()[2] == b"[]"


def test_nothing_is_left_of_all_that(parts: tuple[Front, RunningFront, FakeSupervisor]) -> None:
    front, running, supervisor = parts
    for number in range(4):
        stop(front, f"c{number}")
    wait_until(lambda: supervisor.open_leases() == 0)
    wait_until(lambda: len(running.recordings) == 0)
    assert running.recordings.total_bytes == 0
