"""Conversations that survive a dropped line, with a real daemon and a real model."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import requests

from tests.conftest import wait_until
from tests.harness import Llamad

pytestmark = pytest.mark.model

# Long enough to be still running when the client is back, on any machine.
TOKENS = 120


def converse(daemon: Llamad, id: str, model: str = "smol", **fields: Any) -> requests.Response:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Tell me a long story."}],
        "stream": True,
        "temperature": 0,
        "ignore_eos": True,
        "max_tokens": TOKENS,
        **fields,
    }
    return requests.post(
        daemon.url + "/v1/chat/completions",
        json=body,
        headers={"X-Conversation-Id": id},
        timeout=(10, 120),
        stream=True,
    )


def read_events(response: requests.Response, count: int) -> bytes:
    """So many events, and whatever came along; then the line drops."""
    assert response.status_code == 200, response.text
    seen = b""
    for chunk in response.iter_content(None):
        seen += chunk
        if seen.count(b"\n\n") >= count:
            break
    response.close()
    return seen


def resume(daemon: Llamad, id: str, offset: int = 0, **options: Any) -> requests.Response:
    query = {"conv_id": id, "from": str(offset)}
    return requests.get(daemon.url + "/v1/stream", params=query, timeout=(10, 120), **options)


def lookup(daemon: Llamad, *ids: str) -> list[dict[str, Any]]:
    answer = daemon.post("/v1/streams/lookup", {"conversation_ids": list(ids)})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def leases(daemon: Llamad, model: str = "smol") -> int:
    return int(daemon.model(model)["llamad"]["leases"])


def test_a_dropped_line_is_taken_up_again_exactly_once(llamad: Llamad) -> None:
    seen = read_events(converse(llamad, "drop::smol"), 5)
    # It goes on without anybody: more comes than the client has seen.
    wait_until(lambda: lookup(llamad, "drop")[0]["total_bytes"] > len(seen) + 3000, 60)
    assert leases(llamad) == 1
    rest = resume(llamad, "drop::smol", len(seen))
    assert rest.headers["content-type"] == "text/event-stream"
    whole = seen + rest.content
    assert whole.endswith(b"data: [DONE]\n\n")
    assert whole.count(b"data: [DONE]") == 1
    wait_until(lambda: leases(llamad) == 0)

    # After the end it is replayed, from any byte, to any number of readers.
    assert resume(llamad, "drop::smol").content == whole
    assert resume(llamad, "drop::smol", len(whole) - 7).content == whole[-7:]
    (status,) = lookup(llamad, "drop", "never-was")
    assert (status["is_done"], status["total_bytes"]) == (True, len(whole))
    assert status["completed_at"] >= status["started_at"]

    # It is what a client that stayed would have seen: one event a token.
    plain = llamad.chat("smol", "Tell me a long story.", max_tokens=TOKENS, ignore_eos=True)
    assert plain.json()["usage"]["completion_tokens"] == TOKENS
    assert whole.count(b'"content":"') >= TOKENS * 0.8


def test_two_readers_of_one_running_conversation(llamad: Llamad) -> None:
    seen = read_events(converse(llamad, "two"), 3)
    answers: dict[int, bytes] = {}

    def read(offset: int) -> None:
        answers[offset] = resume(llamad, "two", offset).content

    readers = [threading.Thread(target=read, args=(offset,)) for offset in (0, len(seen))]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(120)
    assert answers[0] == seen + answers[len(seen)]
    assert answers[0].endswith(b"data: [DONE]\n\n")


def test_a_stop_ends_the_generation(llamad: Llamad) -> None:
    read_events(converse(llamad, "stop", max_tokens=1500), 3)
    assert leases(llamad) == 1
    for _ in range(2):
        answer = requests.delete(llamad.url + "/v1/stream", params={"conv_id": "stop"}, timeout=10)
        assert (answer.status_code, answer.content) == (204, b"")
    assert leases(llamad) == 0

    def processing() -> bool:
        slots = requests.get(llamad.url + "/slots", params={"model": "smol"}, timeout=10)
        return any(slot["is_processing"] for slot in slots.json())

    wait_until(lambda: not processing(), 30)
    assert resume(llamad, "stop").status_code == 404
    assert lookup(llamad, "stop") == []


def test_a_new_request_under_the_same_id_ends_the_old_one(llamad: Llamad) -> None:
    first = converse(llamad, "same", max_tokens=1500)
    assert first.status_code == 200
    second = converse(llamad, "same", max_tokens=3)
    assert second.content.endswith(b"data: [DONE]\n\n")
    assert b'"kind":"conversation-stopped"' in first.content.split(b"\n\n")[-2]
    assert resume(llamad, "same").content == second.content


def test_a_refusal_is_what_it_is_without(llamad: Llamad) -> None:
    answer = converse(llamad, "bad", messages=5)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (400, "bad-field")
    assert converse(llamad, "bad", model="nobody").status_code == 404
    assert resume(llamad, "never-was").status_code == 404


def test_a_plain_answer_survives_too(llamad: Llamad) -> None:
    with pytest.raises(requests.ReadTimeout):
        requests.post(
            llamad.url + "/v1/chat/completions",
            json={
                "model": "smol",
                "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 40,
                "ignore_eos": True,
            },
            headers={"X-Conversation-Id": "plain"},
            timeout=(10, 0.3),
        )
    answer = resume(llamad, "plain")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["usage"]["completion_tokens"] == 40


@pytest.fixture
def daemon(presets: str) -> Iterator[Llamad]:
    with Llamad(presets, "--workers", "1") as daemon:
        yield daemon


def test_what_waits_for_its_model_is_not_lost_with_its_client(daemon: Llamad) -> None:
    with pytest.raises(requests.ReadTimeout):
        requests.post(
            daemon.url + "/v1/chat/completions",
            json={
                "model": "smol",
                "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 3,
                "stream": True,
            },
            headers={"X-Conversation-Id": "early"},
            timeout=(10, 0.2),
        )
    (status,) = lookup(daemon, "early")
    assert status["is_done"] is False
    # Who is back before the model is there waits for it.
    assert resume(daemon, "early").content.endswith(b"data: [DONE]\n\n")
    assert daemon.state("smol") == "loaded"


def test_a_stop_while_it_loads_and_a_kill_while_it_runs(daemon: Llamad) -> None:
    answer: list[requests.Response] = []
    client = threading.Thread(target=lambda: answer.append(converse(daemon, "loads", model="gemma")))
    client.start()
    wait_until(lambda: lookup(daemon, "loads"))
    assert requests.delete(daemon.url + "/v1/stream?conv_id=loads", timeout=10).status_code == 204
    client.join(30)
    assert (answer[0].status_code, answer[0].json()["error"]["kind"]) == (410, "conversation-stopped")

    seen = read_events(converse(daemon, "killed", max_tokens=1500), 3)
    reader = resume(daemon, "killed", len(seen), stream=True)
    os.kill(daemon.ps("instance", "smol")[0]["pid"], signal.SIGKILL)
    assert b'"kind":"instance-died"' in reader.content.split(b"\n\n")[-2]
    assert b"[DONE]" not in reader.content
    # A refused answer counts as false.
    (lost,) = wait_until(lambda: (answer := resume(daemon, "killed")).status_code == 410 and (answer,))
    assert lost.json()["error"]["kind"] == "conversation-lost"
    assert "SIGKILL" in lost.json()["error"]["message"]
    assert lookup(daemon, "killed") == []


def test_a_worker_that_is_killed_leaves_its_conversations_running(daemon: Llamad) -> None:
    stream = converse(daemon, "worker")
    assert stream.status_code == 200
    held = stream.iter_content(1)
    next(held)
    (worker,) = daemon.workers()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: daemon.workers() - {worker}, 30)
    assert leases(daemon) == 1
    assert resume(daemon, "worker").content.endswith(b"data: [DONE]\n\n")
    wait_until(lambda: leases(daemon) == 0)


def test_a_sleeper_replays_without_waking(smollm2: Path) -> None:
    with Llamad(f"[smol]\nmodel = {smollm2}\nctx-size = 512\nsleep-idle-seconds = 1\n") as daemon:
        whole = converse(daemon, "sleeps", max_tokens=3).content
        daemon.wait_state("smol", "sleeping", 30)
        assert resume(daemon, "sleeps").content == whole
        assert lookup(daemon, "sleeps")[0]["is_done"] is True
        assert daemon.state("smol") == "sleeping"


# ---- pings and progress, for clients that know nothing of them


def test_the_official_client_passes_over_pings_and_progress(smollm2: Path) -> None:
    presets = f"[slow]\nmodel = {smollm2}\nctx-size = 2048\nnp = 1\nsse-ping-interval = 1\n"
    with Llamad(presets) as daemon, openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused") as client:
        wanted: dict[str, Any] = {
            "model": "slow",
            "messages": [{"role": "user", "content": "Count to ten. " * 100}],
            "temperature": 0,
            "max_tokens": 4,
        }
        texts = []
        for headers in ({}, {"X-Llamad-Progress": "1"}, {"X-Llamad-Progress": "0"}):
            with client.chat.completions.create(**wanted, stream=True, extra_headers=headers) as stream:
                deltas = [choice.delta.content or "" for chunk in stream for choice in chunk.choices]
            texts.append("".join(deltas))
        assert len(set(texts)) == 1

        # One slot: the second waits for the first, silently but for its pings.
        first = daemon.chat("slow", "Tell me a story.", stream=True, max_tokens=1800, ignore_eos=True)
        others = first.iter_content(1)
        next(others)
        second = daemon.chat("slow", "hi", stream=True, max_tokens=2)
        assert second.status_code == 200
        chunks = second.iter_content(None)
        assert next(chunks) == b": ping\n\n"
        first.close()
        assert b"".join(chunks).endswith(b"data: [DONE]\n\n")
        silent = daemon.chat("slow", "hi", stream=True, max_tokens=2, sse_ping_interval=-1)
        assert b": ping" not in silent.content


def test_progress_of_a_load_is_seen_and_its_failure_is_a_frame(smollm2: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    shutil.copy(smollm2, broken)
    presets = f"[smol]\nmodel = {smollm2}\nctx-size = 512\n[broken]\nmodel = {broken}\nctx-size = 512\n"
    with Llamad(presets) as daemon:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 2}
        headers = {"X-Llamad-Progress": "events"}
        url = daemon.url + "/v1/chat/completions"
        seen = requests.post(url, json={**body, "model": "smol"}, headers=headers, timeout=60)
        words = [event for event in seen.text.split("\n\n") if event.startswith("event: progress\n")]
        assert 'data: {"queued":1}' in words[0]
        assert any('data: {"loading":' in word for word in words)
        assert seen.text.endswith("data: [DONE]\n\n")

        os.truncate(broken, 4 << 20)
        failed = requests.post(url, json={**body, "model": "broken"}, headers=headers, timeout=60)
        assert failed.status_code == 200
        last = failed.text.split("\n\n")[-2]
        assert '"kind":"load-failed"' in last
        assert "[DONE]" not in failed.text
        plain = requests.post(url, json={**body, "model": "broken"}, timeout=60)
        assert (plain.status_code, plain.json()["error"]["kind"]) == (503, "load-failed")
