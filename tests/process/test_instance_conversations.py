"""Conversations at the instance: its real HTTP front over a toy engine."""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Callable, Iterator

import pytest
import requests

from llamad.child import conversations
from llamad.engine.vocabulary import GenerateRequest
from tests.conftest import wait_until
from tests.process.front_kit import TOKEN, RunningFront

PATH = "/v1/chat/completions"
STREAM = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
TICKET = 7


@pytest.fixture
def front() -> Iterator[RunningFront]:
    with RunningFront() as front:
        yield front


class Conversation:
    """A client on a raw connection, and the answer as it is seen by it."""

    def __init__(self, front: RunningFront, body: dict = STREAM, ticket: int = TICKET, id: str = "c") -> None:
        self.socket = front.connect()
        self.socket.settimeout(10)
        data = json.dumps(body).encode()
        self.socket.sendall(
            f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\nx-llamad-ticket: {ticket}\r\n"
            f"x-conversation-id: {id}\r\ncontent-length: {len(data)}\r\n\r\n".encode()
            + data
        )
        self.seen = b""

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self.seen:
            piece = self.socket.recv(65536)
            assert piece, f"ended after {self.seen!r}"
            self.seen += piece
        return self.seen

    def leave(self) -> None:
        self.socket.close()


def said(front: RunningFront) -> list[tuple[int, str]]:
    """What the instance has reported, without what it took."""
    return [(ticket, state) for ticket, state, _ in front.reports]


def get(
    front: RunningFront, offset: int | str = 0, ticket: int = TICKET, **options: object
) -> requests.Response:
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Llamad-Ticket": str(ticket)}
    return requests.get(
        f"{front.url}/v1/stream?conv_id=c&from={offset}", headers=headers, timeout=10, **options
    )


def lookup(front: RunningFront, *tickets: int) -> list[dict]:
    answer = requests.post(
        front.url + "/v1/streams/lookup",
        json={"tickets": list(tickets)},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=10,
    )
    assert answer.status_code == 200
    return answer.json()


def submitted(front: RunningFront, count: int = 1) -> GenerateRequest:
    return wait_until(lambda: len(front.engine.submitted) >= count and front.engine.submitted[count - 1])


def recording(front: RunningFront, ticket: int = TICKET) -> conversations.Recording:
    return wait_until(lambda: (front.recordings.find([ticket]) or [None])[0])


def finished(front: RunningFront, request: GenerateRequest, *texts: str) -> bytes:
    """Let the request say this and end; the whole of its answer as it was kept."""
    for text in texts:
        front.engine.say(request, text)
    front.engine.say(request, "", reason="stop")
    ended = recording(front)
    wait_until(lambda: ended.over)
    return ended.ring.read(0)


def test_it_goes_on_when_its_client_leaves_and_is_replayed_from_any_byte(front: RunningFront) -> None:
    client = Conversation(front)
    request = submitted(front)
    front.engine.say(request, "one")
    client.read_until(b"one")
    client.leave()
    whole = finished(front, request, "two", "three")
    assert front.engine.cancelled == []
    assert whole.endswith(b"data: [DONE]\n\n")
    assert [piece in whole for piece in (b"one", b"two", b"three")] == [True] * 3
    for offset in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
        answer = get(front, offset)
        assert (answer.status_code, answer.content) == (200, whole[offset:])
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["x-accel-buffering"] == "no"


def test_the_first_client_gets_what_is_kept(front: RunningFront) -> None:
    client = Conversation(front)
    whole = finished(front, submitted(front), "naïve 漢字", "🦙")
    head, _, body = client.read_until(b"0\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"".join(dechunked(body)) == whole


def dechunked(body: bytes) -> Iterator[bytes]:
    while body:
        size, _, rest = body.partition(b"\r\n")
        yield rest[: int(size, 16)]
        body = rest[int(size, 16) + 2 :]


def test_two_readers_and_the_first_client_all_get_everything(front: RunningFront) -> None:
    client = Conversation(front)
    request = submitted(front)
    front.engine.say(request, "one")
    client.read_until(b"one")
    readers = [get(front, 0, stream=True), get(front, 10, stream=True)]
    whole = finished(front, request, "two")
    assert [reader.content for reader in readers] == [whole, whole[10:]]
    assert b"two" in client.read_until(b"0\r\n\r\n")


def test_a_reader_that_leaves_stops_nobody(front: RunningFront) -> None:
    client = Conversation(front)
    request = submitted(front)
    front.engine.say(request, "one")
    client.read_until(b"one")
    reader = get(front, 0, stream=True)
    reader.close()
    whole = finished(front, request, "two")
    assert get(front).content == whole


def test_it_is_the_engine_that_hears_of_a_stop(front: RunningFront) -> None:
    client = Conversation(front)
    request = submitted(front)
    front.engine.say(request, "one")
    client.read_until(b"one")
    reader = get(front, 0, stream=True)
    front.in_loop(front.recordings.stop, TICKET)
    wait_until(lambda: front.engine.cancelled == [request.id])
    events = reader.content.split(b"\n\n")[:-1]
    assert json.loads(events[-1].removeprefix(b"data: "))["error"]["kind"] == "conversation-stopped"
    assert b"[DONE]" not in reader.content
    assert b"conversation-stopped" in client.read_until(b"0\r\n\r\n")
    assert get(front).status_code == 404
    assert [report[:2] for report in front.reports] == [(TICKET, "forgotten")]


def test_a_stop_before_the_head_has_a_status(front: RunningFront) -> None:
    client = Conversation(front)
    request = submitted(front)
    front.in_loop(front.recordings.stop, TICKET)
    answer = client.read_until(b"conversation-stopped")
    assert answer.startswith(b"HTTP/1.1 410")
    wait_until(lambda: front.engine.cancelled == [request.id])


def test_a_report_says_once_what_it_took(front: RunningFront) -> None:
    Conversation(front).leave()
    request = submitted(front)
    front.engine.say(request, "one")
    front.engine.say(request, "two", reason="stop")
    wait_until(lambda: (TICKET, "ended") in said(front))
    front.in_loop(front.recordings.stop, TICKET)
    wait_until(lambda: len(front.reports) == 2)
    (_, _, tokens), (_, _, again) = front.reports
    assert tokens >= len(request.tokens)
    assert again == 0


def test_what_is_stopped_counts_by_its_events(front: RunningFront) -> None:
    client = Conversation(front)
    request = submitted(front)
    for _ in range(5):
        front.engine.say(request, "word")
    while client.read_until(b"word").count(b"word") < 5:
        client.seen += client.socket.recv(65536)
    front.in_loop(front.recordings.stop, TICKET)
    wait_until(lambda: front.reports)
    assert front.reports[0][2] >= 5


def test_a_plain_answer_is_kept_as_what_it_is(front: RunningFront) -> None:
    client = Conversation(front, {**STREAM, "stream": False})
    client.leave()
    request = submitted(front)
    front.engine.say(request, "hello", reason="stop")
    wait_until(lambda: (TICKET, "ended") in said(front))
    answer = get(front)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["choices"][0]["message"]["content"] == "hello"


def test_a_refusal_is_kept_only_for_a_client_that_did_not_hear_it(front: RunningFront) -> None:
    client = Conversation(front, {"messages": 5})
    assert client.read_until(b"bad-field").startswith(b"HTTP/1.1 400")
    wait_until(lambda: said(front)[-1:] == [(TICKET, "forgotten")])
    assert get(front).status_code == 404


def test_unknown_tickets_and_bad_offsets(front: RunningFront) -> None:
    client = Conversation(front)
    request = submitted(front)
    front.engine.say(request, "one")
    client.read_until(b"one")
    assert get(front, ticket=99).status_code == 404
    for offset in ("-1", "x", "1.5", "9" * 30, "٣", 10_000_000):
        answer = get(front, offset)
        assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "bad-offset"), offset


def test_dropped_bytes_are_gone_not_others_in_their_place(
    front: RunningFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "RING_BYTES_MAX", 2000)
    client = Conversation(front)
    request = submitted(front)
    front.engine.say(request, "one")
    client.read_until(b"one")
    reader = get(front, 0, stream=True)
    client.leave()
    for number in range(100):
        front.engine.say(request, f"word {number} ")
    front.engine.say(request, "", reason="stop")
    wait_until(lambda: recording(front).over)
    answer = get(front)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (410, "conversation-bytes-lost")
    oldest = answer.json()["error"]["oldest_byte"]
    assert len(get(front, oldest).content) == 2000
    # Whoever reads as it comes has it all.
    assert b"word 0 " in reader.content or b"conversation-bytes-lost" in reader.content


def stands_still(value: Callable[[], int]) -> Callable[[], bool]:
    """True when `value` was the same at ten looks in a row: the buffers on the way are full."""
    seen: deque[int] = deque(maxlen=10)

    def same() -> bool:
        seen.append(value())
        return len(seen) == 10 and len(set(seen)) == 1

    return same


def test_the_first_client_holds_the_answer_back_until_another_reads(
    front: RunningFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "RING_BYTES_MAX", 20_000)
    client = Conversation(front)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = submitted(front)
    word = "x" * 5000
    for _ in range(2000):
        front.engine.say(request, word)
    front.engine.say(request, "", reason="stop")
    held = recording(front)
    wait_until(lambda: held.ring.start > 0)
    wait_until(stands_still(lambda: held.ring.end))
    assert not held.over
    assert get(front, held.ring.end, stream=True).status_code == 200
    wait_until(lambda: held.over)
    client.leave()


def test_a_slow_first_client_misses_nothing(front: RunningFront, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "RING_BYTES_MAX", 10_000)
    client = Conversation(front)
    request = submitted(front)
    words = [f"<{number}>" + "x" * 500 for number in range(2000)]
    for word in words:
        front.engine.say(request, word)
    front.engine.say(request, "", reason="stop")
    _, _, body = client.read_until(b"0\r\n\r\n").partition(b"\r\n\r\n")
    deltas = [
        json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"].get("content")
        for event in b"".join(dechunked(body)).split(b"\n\n")[:-2]
    ]
    assert [delta for delta in deltas if delta] == words


def test_all_together_are_bounded(front: RunningFront, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "TOTAL_BYTES_MAX", 5000)
    for ticket in (1, 2, 3):
        client = Conversation(front, ticket=ticket, id=str(ticket))
        request = submitted(front, ticket)
        front.engine.say(request, "x" * 2000, reason="stop")
        client.read_until(b"0\r\n\r\n")
        wait_until(lambda ticket=ticket: (ticket, "ended") in said(front))
    assert front.recordings.total_bytes <= 5000
    assert get(front, ticket=1).status_code == 404
    assert get(front, ticket=3).status_code == 200


def test_it_is_forgotten_after_a_while(front: RunningFront, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "KEPT_S", 0.05)
    client = Conversation(front)
    finished_client = submitted(front)
    front.engine.say(finished_client, "", reason="stop")
    client.read_until(b"0\r\n\r\n")
    wait_until(lambda: said(front) == [(TICKET, "ended"), (TICKET, "forgotten")])
    assert get(front).status_code == 404
    assert front.recordings.total_bytes == 0


def test_lookup(front: RunningFront) -> None:
    client = Conversation(front, id="conv::toy")
    request = submitted(front)
    front.engine.say(request, "one")
    client.read_until(b"one")
    (status,) = lookup(front, TICKET, 99)
    assert (status["ticket"], status["is_done"], status["completed_at"]) == (TICKET, False, 0)
    assert status["total_bytes"] == recording(front).ring.end
    front.engine.say(request, "", reason="stop")
    client.read_until(b"0\r\n\r\n")
    (status,) = wait_until(lambda: [s for s in lookup(front, TICKET) if s["is_done"] and s["completed_at"]])
    assert status["completed_at"] >= status["started_at"] > 1_700_000_000


def test_the_same_ticket_again_ends_the_first(front: RunningFront) -> None:
    Conversation(front)
    first = submitted(front)
    second = Conversation(front)
    request = submitted(front, 2)
    wait_until(lambda: front.engine.cancelled == [first.id])
    front.engine.say(request, "hello", reason="stop")
    assert b"hello" in second.read_until(b"0\r\n\r\n")


def test_without_a_ticket_an_id_is_nothing(front: RunningFront) -> None:
    client = Conversation(front, ticket=0)
    request = submitted(front)
    client.leave()
    wait_until(lambda: front.engine.cancelled == [request.id])


# ---- pings


@pytest.mark.parametrize("stream", [True, False])
def test_a_silent_stream_says_that_it_lives(front: RunningFront, stream: bool) -> None:
    client = Conversation(front, {**STREAM, "stream": stream, "sse_ping_interval": 1}, ticket=0)
    request = submitted(front)
    if stream:
        client.read_until(b": ping\n\n")
        assert b"data:" not in client.seen
    front.engine.say(request, "hello")
    if stream:
        client.read_until(b"hello")
        client.seen = b""
        client.read_until(b": ping\n\n")
    front.engine.say(request, "", reason="stop")
    end = b"0\r\n\r\n" if stream else b"}"
    assert (b": ping" in client.read_until(end)) is stream


def test_a_failure_after_the_first_ping_is_a_frame(front: RunningFront) -> None:
    from llamad.engine.vocabulary import Failed
    from llamad.errors import LlamadError

    client = Conversation(front, {**STREAM, "sse_ping_interval": 1}, ticket=0)
    request = submitted(front)
    client.read_until(b": ping\n\n")
    front.engine.deliver([Failed(request.id, LlamadError("cannot go on", kind="broken"))])
    answer = client.read_until(b"0\r\n\r\n")
    assert b'"kind":"broken"' in answer
    assert b"[DONE]" not in answer


def test_pings_are_part_of_what_is_replayed(front: RunningFront) -> None:
    client = Conversation(front, {**STREAM, "sse_ping_interval": 1})
    request = submitted(front)
    client.read_until(b": ping\n\n")
    whole = finished(front, request, "hello")
    assert whole.startswith(b": ping\n\ndata: ")
    assert get(front, len(b": ping\n\n")).content == whole[len(b": ping\n\n") :]


@pytest.mark.parametrize("asked", ["1", 1.5, -2, [1]])
def test_a_ping_interval_is_a_whole_number(front: RunningFront, asked: object) -> None:
    client = Conversation(front, {**STREAM, "sse_ping_interval": asked}, ticket=0)
    assert client.read_until(b"sse_ping_interval").startswith(b"HTTP/1.1 400")
