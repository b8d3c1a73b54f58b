"""The instance's HTTP front: who is served, how errors look, and that a caller who leaves is noticed at every stage."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from llamad.child import connection
from llamad.child.connection import HEAD_BYTES_MAX
from llamad.child.front import listen
from llamad.engine.vocabulary import Failed, GenerateRequest
from llamad.errors import LlamadError, UnavailableError
from tests.conftest import wait_until
from tests.process.front_kit import BODY_BYTES_MAX, N_CTX, TOKEN, RunningFront

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
CANCEL_WITHIN_S = 0.1
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
GENERATING = {
    "/v1/chat/completions": CHAT,
    "/chat/completions": CHAT,
    "/v1/completions": {"prompt": "hi"},
    "/completion": {"prompt": "hi"},
    "/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/responses": {"input": "hi"},
    "/v1/messages": CHAT | {"max_tokens": 9},
}
WITH_END_MARKER = ("/v1/chat/completions", "/chat/completions", "/v1/completions")


@pytest.fixture
def front() -> Iterator[RunningFront]:
    with RunningFront() as front:
        yield front


class Call(threading.Thread):
    """A POST on a thread of its own; `result` waits for the answer."""

    def __init__(self, front: RunningFront, path: str, body: object, **options: object) -> None:
        super().__init__(daemon=True)
        self._arguments = (front.url + path, body, options)
        self.start()

    def run(self) -> None:
        url, body, options = self._arguments
        self._answer = requests.post(url, json=body, headers=AUTHORIZED, timeout=10, **options)

    def result(self) -> requests.Response:
        self.join(10)
        return self._answer


def submitted(front: RunningFront, count: int = 1) -> list[GenerateRequest]:
    return wait_until(lambda: front.engine.submitted if len(front.engine.submitted) >= count else None)


def send(front: RunningFront, path: str, body: dict, *, short_by: int = 0) -> socket.socket:
    """A raw POST whose body lacks its last `short_by` bytes."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = front.connect()
    connection.sendall(head.encode() + data[: len(data) - short_by])
    return connection


def events(text: str) -> list[str]:
    return [part.removeprefix("data: ") for part in text.split("\n\n") if part]


# ---- who is served


@pytest.mark.parametrize("path", ["/health", "/props", "/slots", "/unknown"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}],
    ids=str,
)
def test_only_callers_with_the_token_are_served(
    front: RunningFront, path: str, headers: dict[str, str]
) -> None:
    answer = requests.get(front.url + path, headers=headers, timeout=5)
    assert answer.status_code == 401
    assert answer.json()["error"]["kind"] == "bad-token"
    assert TOKEN not in answer.text


def test_no_generation_without_the_token(front: RunningFront) -> None:
    answer = requests.post(front.url + "/completion", json={"prompt": "hi"}, timeout=5)
    assert answer.status_code == 401
    assert front.engine.submitted == []


# ---- answers


@pytest.mark.parametrize(("path", "body"), GENERATING.items())
def test_a_plain_answer(front: RunningFront, path: str, body: dict) -> None:
    call = Call(front, path, body)
    (request,) = submitted(front)
    front.engine.say(request, "Hel")
    front.engine.say(request, "lo", reason="stop")
    answer = call.result()
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert "Hello" in answer.text
    assert front.engine.cancelled == []


@pytest.mark.parametrize(("path", "body"), GENERATING.items())
def test_a_stream_has_one_event_a_text(front: RunningFront, path: str, body: dict) -> None:
    call = Call(front, path, body | {"stream": True})
    (request,) = submitted(front)
    front.engine.say(request, "Hel")
    front.engine.say(request, "lo", reason="length")
    answer = call.result()
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    frames = events(answer.text)
    assert (frames[-1] == "[DONE]") == (path in WITH_END_MARKER)
    assert sum('"Hel"' in frame for frame in frames) == 1
    assert sum('"lo"' in frame for frame in frames) == 1


def test_a_stream_is_not_held_back(front: RunningFront) -> None:
    with send(front, "/v1/completions", {"prompt": "hi", "stream": True}) as connection:
        (request,) = submitted(front)
        received = b""
        for text in ("one", "two", "three"):
            front.engine.say(request, text)
            while f'"{text}"'.encode() not in received:
                received += connection.recv(4096)


def test_what_is_asked_for_reaches_the_engine(front: RunningFront) -> None:
    body = CHAT | {"max_tokens": 3, "stop": ["x"], "temperature": 0, "seed": 4, "model": "alias:1"}
    call = Call(front, "/v1/chat/completions", body)
    (request,) = submitted(front)
    assert bytes(request.tokens).decode() == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert (request.max_tokens, request.stop) == (3, ("x", "<|im_end|>"))
    assert (request.sampling.temperature, request.sampling.seed) == (0.0, 4)
    front.engine.say(request, "ok", reason="stop")
    assert call.result().json()["model"] == "alias:1"


def test_several_prompts_are_several_sequences(front: RunningFront) -> None:
    call = Call(front, "/v1/completions", {"prompt": ["a", "b"]})
    first, second = submitted(front, 2)
    front.engine.say(second, "B", reason="stop")
    front.engine.say(first, "A", reason="length")
    document = call.result().json()
    assert [choice["text"] for choice in document["choices"]] == ["A", "B"]
    assert document["usage"]["completion_tokens"] == 4


def test_the_model_tells_of_itself(front: RunningFront) -> None:
    def get(path: str) -> object:
        return requests.get(front.url + path, headers=AUTHORIZED, timeout=5).json()

    def post(path: str, body: dict) -> object:
        return requests.post(front.url + path, json=body, headers=AUTHORIZED, timeout=5).json()

    assert get("/health") == {"status": "ok"}
    assert get("/props")["model_alias"] == "toy"
    assert get("/slots")[0]["is_processing"] is False
    assert post("/tokenize", {"content": "hi"}) == {"tokens": [104, 105]}
    assert post("/tokenize", {"content": "x" * 9000})["tokens"] == [120] * 9000
    assert post("/detokenize", {"tokens": [104, 105]}) == {"content": "hi"}
    assert post("/apply-template", CHAT)["prompt"].startswith("<|im_start|>user\nhi")


# ---- errors


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/v1/chat/completions", b"{", 400, "bad-json"),
        ("/v1/chat/completions", b"[" * 5000, 400, "bad-json"),
        ("/v1/chat/completions", b'{"messages": 5}', 400, "bad-field"),
        ("/v1/completions", b'{"prompt": "x", "best_of": 3}', 400, "unsupported-field"),
        ("/v1/completions", json.dumps({"prompt": "x" * N_CTX}).encode(), 400, "exceed-context-size"),
        ("/v1/completions", json.dumps({"prompt": [1] * (N_CTX + 1)}).encode(), 400, "exceed-context-size"),
        (
            "/v1/completions",
            json.dumps({"prompt": "x" * N_CTX, "stream": True}).encode(),
            400,
            "exceed-context-size",
        ),
        ("/v1/embeddings", b"{}", 501, "not-supported"),
        ("/unknown", b"{}", 404, "not-found"),
        ("/health", b"{}", 405, "method-not-allowed"),
        ("/tokenize", b'{"content": 5}', 400, "bad-field"),
        ("/completion", b"x" * (BODY_BYTES_MAX + 1), 413, "body-too-large"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_errors_have_the_openai_shape(
    front: RunningFront, path: str, body: bytes, status: int, kind: str
) -> None:
    answer = requests.post(front.url + path, data=body, headers=AUTHORIZED, timeout=5)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert (error["code"], error["kind"]) == (status, kind)
    assert error["message"].startswith("cannot ")


def test_a_body_of_unknown_length_is_bounded_too(front: RunningFront) -> None:
    chunks = (b"x" * 1000 for _ in range(1 + BODY_BYTES_MAX // 1000))
    answer = requests.post(front.url + "/completion", data=chunks, headers=AUTHORIZED, timeout=5)
    assert answer.status_code == 413


def test_a_failure_before_the_first_text_has_its_own_status(front: RunningFront) -> None:
    call = Call(front, "/v1/completions", {"prompt": "hi", "stream": True})
    (request,) = submitted(front)
    front.engine.deliver(
        [Failed(request.id, UnavailableError("cannot now", kind="queue-full", retry_after_s=2.0))]
    )
    answer = call.result()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"
    assert answer.json()["error"]["kind"] == "queue-full"


def test_a_failure_in_a_stream_is_a_last_frame_without_end_marker(front: RunningFront) -> None:
    call = Call(front, "/v1/chat/completions", CHAT | {"stream": True})
    (request,) = submitted(front)
    front.engine.say(request, "Hel")
    front.engine.deliver([Failed(request.id, LlamadError("cannot go on", kind="decode-failed"))])
    frames = events(call.result().text)
    assert "Hel" in frames[-2]
    assert json.loads(frames[-1])["error"]["kind"] == "decode-failed"


def test_when_one_of_several_sequences_fails_the_others_are_cancelled(front: RunningFront) -> None:
    call = Call(front, "/v1/completions", {"prompt": ["a", "b"]})
    first, second = submitted(front, 2)
    front.engine.deliver([Failed(first.id, LlamadError("cannot go on", kind="decode-failed"))])
    assert call.result().status_code == 500
    wait_until(lambda: front.engine.cancelled == [second.id])


# ---- callers who leave


def assert_cancelled_soon(front: RunningFront, ids: list[int], since: float) -> None:
    wait_until(lambda: front.engine.cancelled == ids, within_s=2.0, every_s=0.002)
    assert time.monotonic() - since < CANCEL_WITHIN_S


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("said", [(), ("some", "words")], ids=["before the first text", "between texts"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/completion"])
def test_a_caller_who_leaves_is_noticed(
    front: RunningFront, path: str, stream: bool, said: tuple[str, ...]
) -> None:
    connection = send(front, path, GENERATING[path] | {"stream": stream})
    (request,) = submitted(front)
    if said:
        front.engine.say(request, *said)
        if stream:
            connection.recv(100)
    left_at = time.monotonic()
    connection.close()
    assert_cancelled_soon(front, [request.id], left_at)


def test_a_caller_who_leaves_takes_all_sequences_along(front: RunningFront) -> None:
    connection = send(front, "/v1/completions", {"prompt": ["a", "b", "c"], "stream": True})
    ids = [request.id for request in submitted(front, 3)]
    left_at = time.monotonic()
    connection.close()
    assert_cancelled_soon(front, ids, left_at)


def test_a_caller_who_leaves_in_mid_body_starts_nothing(front: RunningFront) -> None:
    send(front, "/v1/completions", {"prompt": "hi"}, short_by=1).close()
    answered = Call(front, "/v1/completions", {"prompt": "hello"})
    (request,) = submitted(front)
    assert bytes(request.tokens) == b"hello"
    front.engine.say(request, "x", reason="stop")
    assert answered.result().status_code == 200


def test_late_words_for_a_caller_who_left_are_dropped(front: RunningFront) -> None:
    connection = send(front, "/completion", {"prompt": "hi"})
    (request,) = submitted(front)
    connection.close()
    wait_until(lambda: front.engine.cancelled)
    front.engine.say(request, "late", reason="stop")
    assert requests.get(front.url + "/health", headers=AUTHORIZED, timeout=5).status_code == 200


def test_a_connection_serves_again_after_an_answer(front: RunningFront) -> None:
    with requests.Session() as session:
        session.headers.update(AUTHORIZED)
        for count in (1, 2, 3):
            answer: list[requests.Response] = []
            call = threading.Thread(
                target=lambda answer=answer: answer.append(
                    session.post(front.url + "/completion", json={"prompt": "hi"}, timeout=10)
                )
            )
            call.start()
            front.engine.say(submitted(front, count)[-1], "ok", reason="stop")
            call.join(10)
            assert answer[0].json()["content"] == "ok"
    assert front.engine.cancelled == []


# ---- listeners


def test_a_socket_left_by_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "i.sock")
    for _ in range(2):
        listener, address = listen(path)
        assert address == f"unix:{path}"
        assert os.stat(path).st_mode & 0o777 == 0o600
        listener.close()


@pytest.mark.parametrize("name", ["file", "no/such/folder/i.sock", "long" * 40])
def test_where_nobody_can_listen_the_reason_is_given(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(LlamadError, match="cannot listen on") as caught:
        listen(str(tmp_path / name))
    assert caught.value.kind == "cannot-listen"
    assert (tmp_path / "file").read_text() == "precious"


# ---- the end


def test_a_stop_lets_running_requests_finish_and_accepts_no_more(front: RunningFront) -> None:
    idle = requests.Session()
    idle.get(front.url + "/health", headers=AUTHORIZED, timeout=5)
    call = Call(front, "/v1/completions", {"prompt": "hi", "stream": True})
    (request,) = submitted(front)
    front.engine.say(request, "one")
    front.stop()

    def refused() -> bool:
        try:
            front.connect().close()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(refused)
    assert not front.ended(0)
    front.engine.say(request, "two", reason="stop")
    assert events(call.result().text)[-1] == "[DONE]"
    assert front.ended(5)
    idle.close()


# ---- callers without a token


@pytest.mark.parametrize("start", [b"GET /", b"GET /health HTTP/1.1\r\nx: ", b"GET /health HTTP/1.1\r\n"])
def test_a_head_without_end_is_cut_off(front: RunningFront, start: bytes) -> None:
    """Every user of the machine can send one, and it costs many times its size here."""
    more = b"a: b\r\n" * 10_000 if start.endswith(b"1.1\r\n") else b"a" * 60_000
    with front.connect() as client:
        client.sendall(start)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            client.sendall(more * (20 * HEAD_BYTES_MAX // len(more)))
    assert requests.get(front.url + "/health", headers=AUTHORIZED, timeout=10).status_code == 200


def test_who_connects_and_says_nothing_is_dropped(
    front: RunningFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_HEAD_WITHIN_S", 0.2)
    with requests.Session() as kept:
        for _ in range(2):
            assert kept.get(front.url + "/health", headers=AUTHORIZED, timeout=10).status_code == 200
            with front.connect() as client:
                client.sendall(b"GET /health HTTP/1.1\r\n")
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(1) == b""


def test_heads_on_a_kept_connection_are_counted_one_by_one(front: RunningFront) -> None:
    with requests.Session() as kept:
        for _ in range(2 * HEAD_BYTES_MAX // 60_000):
            answer = kept.get(front.url + "/health", headers=AUTHORIZED | {"x": "a" * 60_000}, timeout=10)
            assert answer.status_code == 200
