"""A real instance on real models, driven by its pipes and its port, as the supervisor and the proxy do it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.conftest import wait_until
from tests.process.child_kit import Child

pytestmark = pytest.mark.model

TOKEN = "the-instance-token"
N_CTX = 1024
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
STORY = "Once upon a time, in a small village by the sea, there lived"
LONG = {"prompt": STORY, "max_tokens": 600, "ignore_eos": True, "stream": True}


class Instance:
    """A loaded instance and its HTTP calls."""

    def __init__(self, child: Child, ready: dict[str, Any]) -> None:
        self.headers = {"Authorization": f"Bearer {TOKEN}"}
        self.child = child
        self.ready = ready

    @property
    def url(self) -> str:
        return f"http://{self.ready['address']}"

    def get(self, path: str) -> Any:
        answer = requests.get(self.url + path, headers=self.headers, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: dict[str, Any], status: int = 200) -> Any:
        answer = requests.post(self.url + path, json=body, headers=self.headers, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.json()

    def stream(self, path: str, body: dict[str, Any]) -> list[Any]:
        """All events of a stream; the end marker as it is."""
        body = body | {"stream": True}
        answer = requests.post(self.url + path, json=body, headers=self.headers, timeout=60)
        assert answer.status_code == 200, answer.text
        frames = [part.removeprefix("data: ") for part in answer.content.decode().split("\n\n") if part]
        return [frame if frame == "[DONE]" else json.loads(frame) for frame in frames]

    def busy_slots(self) -> int:
        return sum(slot["is_processing"] for slot in self.get("/slots"))


@contextmanager
def loaded(model: Path, options: dict[str, Any], **body: Any) -> Iterator[Instance]:
    document = {"model": "tiny", "path": str(model), "options": options, "token": TOKEN, "transport": "tcp"}
    with Child("instance", document | body) as child:
        yield Instance(child, child.wait_state("ready"))


@pytest.fixture(scope="module")
def tiny(smollm2: Path) -> Iterator[Instance]:
    with loaded(smollm2, {"ctx-size": N_CTX, "parallel": 2, "temperature": 0.7}) as instance:
        yield instance


def text_of(events: list[Any]) -> str:
    """The text of a stream, whichever of the dialects it is in."""
    text = ""
    for event in events:
        if event == "[DONE]":
            continue
        if "content" in event:
            text += event["content"]
        for choice in event.get("choices", ()):
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
    return text


# ---- life


def test_a_load_tells_progress_and_then_that_it_is_ready(tiny: Instance) -> None:
    loading = [report.payload for report in tiny.child.reports if getattr(report, "state", "") == "loading"]
    values = [payload["value"] for payload in loading]
    assert values == sorted(values)
    assert values[0] == 0.0
    assert values[-1] == 1.0
    assert loading[0]["stages"] == [loading[0]["current"]] == ["text_model"]
    assert tiny.ready["n_ctx"] == N_CTX
    assert tiny.ready["n_slots"] == 2
    assert tiny.ready["meta"]["n_vocab"] == 49152
    assert tiny.ready["meta"]["architecture"] == "llama"
    assert tiny.ready["bytes"]["host"] > 50 << 20


def test_only_reports_stand_on_its_stdout_and_no_secret_in_its_arguments(tiny: Instance) -> None:
    process = psutil.Process(tiny.child.process.pid)
    assert tiny.child.strays == []
    assert TOKEN not in " ".join(process.cmdline())
    assert TOKEN not in str(process.environ())
    assert " ".join(process.cmdline()).strip() == "llamad: instance tiny [loaded]"


def test_callers_without_the_token_are_not_served(tiny: Instance) -> None:
    answer = requests.post(f"{tiny.url}/completion", json={"prompt": "x"}, timeout=10)
    assert answer.status_code == 401


def test_exit_finishes_the_running_stream_first(smollm2: Path) -> None:
    with loaded(smollm2, {"ctx-size": 512, "parallel": 1}) as instance:
        body = {"prompt": STORY, "max_tokens": 40, "ignore_eos": True, "stream": True}
        with opened(instance, "/v1/completions", body) as answer:
            lines = answer.iter_lines()
            next(lines)
            instance.child.ask_exit()
            assert b"data: [DONE]" in list(lines)
        assert instance.child.exit_status(10) == 0


def test_nothing_is_left_a_second_after_the_parent_closes_the_pipe(smollm2: Path) -> None:
    with loaded(smollm2, {"ctx-size": 1024}) as instance, opened(instance, "/v1/completions", LONG) as answer:
        next(answer.iter_lines())
        began = time.monotonic()
        instance.child.close_stdin()
        instance.child.exit_status(5)
        assert time.monotonic() - began < 1.0


def test_exit_in_mid_load_ends_at_once(gemma: Path) -> None:
    body = {
        "model": "g",
        "path": str(gemma),
        "options": {"ctx-size": 512},
        "token": TOKEN,
        "transport": "tcp",
    }
    with Child("instance", body) as child:
        child.wait_state("loading")
        child.ask_exit()
        assert child.exit_status(2) == 0
        assert "ready" not in child.states()


def test_a_unix_socket_is_for_its_user_alone(smollm2: Path, tmp_path: Path) -> None:
    path = tmp_path / "i.sock"
    with loaded(smollm2, {"ctx-size": 256, "parallel": 1}, transport="unix", socket=str(path)) as instance:
        assert instance.ready["address"] == f"unix:{path}"
        assert os.stat(path).st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(f"GET /health HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            assert b"200 OK" in connection.recv(1000)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path, good: None, "No such file"),
        (lambda path, good: path.mkdir(), "directory"),
        (lambda path, good: path.write_bytes(b""), "empty"),
        (lambda path, good: path.write_bytes(b"not a model at all" * 100), "GGUF"),
        (lambda path, good: path.write_bytes(good[: len(good) // 2]), "truncated"),
        (
            lambda path, good: path.write_bytes(good.replace(b"token_embd.weight", b"token_embx.weight", 1)),
            "tensor 'token_embd.weight' not found",
        ),
    ],
    ids=["missing", "a directory", "empty", "no GGUF", "cut in half", "a tensor missing"],
)
def test_what_cannot_be_loaded_fails_with_the_reason(
    smollm2: Path, tmp_path: Path, make, reason: str
) -> None:
    path = tmp_path / "model.gguf"
    make(path, smollm2.read_bytes())
    body = {
        "model": "bad",
        "path": str(path),
        "options": {"ctx-size": 256},
        "token": TOKEN,
        "transport": "tcp",
    }
    with Child("instance", body) as child:
        failure = child.wait_state("failed")
        assert failure["kind"] == "load-failed"
        assert failure["message"].startswith(f"cannot load {path}")
        assert reason in failure["message"]
        assert child.exit_status(10) == 1


def test_the_default_context_is_bounded_and_said(gemma: Path) -> None:
    with loaded(gemma, {"parallel": 1}) as instance:
        assert instance.ready["n_ctx"] == 8192
        assert instance.ready["meta"]["n_ctx_train"] == 32768
        assert "using 8192 of the 32768 tokens" in instance.child.stderr.decode()
        # No template of its own: ChatML, whose end mark is mere text to this model.
        prompt = instance.post("/apply-template", {"messages": QUESTION})["prompt"]
        assert prompt.startswith("<|im_start|>user\n")
        tokens = instance.post("/tokenize", {"content": "Hello", "add_special": True})["tokens"]
        assert tokens[0] == 2


# ---- answers


def test_a_chat_answers_the_question_streamed_or_not(tiny: Instance) -> None:
    body = {"messages": QUESTION, "temperature": 0, "max_tokens": 30, "model": "alias:x"}
    whole = tiny.post("/v1/chat/completions", body)
    assert "Paris" in whole["choices"][0]["message"]["content"]
    assert whole["model"] == "alias:x"
    assert whole["choices"][0]["finish_reason"] == "stop"
    usage = whole["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    events = tiny.stream("/v1/chat/completions", body | {"stream_options": {"include_usage": True}})
    assert events[-1] == "[DONE]"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert text_of(events) == whole["choices"][0]["message"]["content"]
    assert events[-3]["choices"][0]["finish_reason"] == "stop"
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] == usage["completion_tokens"]
    assert events[-2]["usage"]["prompt_tokens"] == usage["prompt_tokens"]


def test_usage_comes_only_when_asked_for(tiny: Instance) -> None:
    events = tiny.stream("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 3})
    assert not any("usage" in event for event in events if event != "[DONE]")


def test_finish_reasons(tiny: Instance) -> None:
    def ask(**fields: Any) -> dict[str, Any]:
        return tiny.post("/completion", {"prompt": STORY, "temperature": 0, **fields})

    limited = ask(n_predict=5)
    assert (limited["stop_type"], limited["tokens_predicted"]) == ("limit", 5)
    word = limited["content"].split()[1]
    stopped = ask(n_predict=50, stop=[word])
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word)
    assert word not in stopped["content"]
    assert limited["content"].startswith(stopped["content"])


def test_no_tokens_asked_for_no_tokens_given(tiny: Instance) -> None:
    answer = tiny.post("/completion", {"prompt": STORY, "n_predict": 0})
    assert (answer["content"], answer["tokens_predicted"], answer["stop_type"]) == ("", 0, "limit")


def test_a_seed_repeats_the_draws(tiny: Instance) -> None:
    def draw(seed: int) -> str:
        body = {"prompt": STORY, "max_tokens": 16, "temperature": 1.0, "seed": seed, "cache_prompt": False}
        return tiny.post("/v1/completions", body)["choices"][0]["text"]

    assert draw(7) == draw(7)
    assert len({draw(seed) for seed in (7, 8, 9, 10)}) > 1


def test_the_seed_that_was_drawn_is_told_and_repeats_the_answer(tiny: Instance) -> None:
    body = {"prompt": STORY, "n_predict": 12, "temperature": 1.0, "cache_prompt": False}
    first = tiny.post("/completion", body)
    again = tiny.post("/completion", body | {"seed": first["generation_settings"]["seed"]})
    assert again["content"] == first["content"]


def test_a_forbidden_token_does_not_come(tiny: Instance) -> None:
    body = {"prompt": STORY, "n_predict": 1, "temperature": 0}
    first = tiny.post("/completion", body)["content"]
    (token,) = tiny.post("/tokenize", {"content": first})["tokens"]
    assert tiny.post("/completion", body | {"logit_bias": [[token, False]]})["content"] != first


def test_a_begun_answer_is_gone_on_with(tiny: Instance) -> None:
    messages = [*QUESTION, {"role": "assistant", "content": "The capital of France is"}]
    body = {"messages": messages, "temperature": 0, "max_tokens": 4}
    answer = tiny.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
    assert answer.startswith(" Paris")


def test_several_prompts_are_answered_each(tiny: Instance) -> None:
    prompts = ["The capital of France is", "The capital of Italy is"]
    document = tiny.post("/v1/completions", {"prompt": prompts, "temperature": 0, "max_tokens": 3})
    texts = [choice["text"] for choice in document["choices"]]
    assert "Paris" in texts[0]
    assert "Rome" in texts[1]


def test_a_repeated_prompt_is_reused(tiny: Instance) -> None:
    body = {"messages": [{"role": "user", "content": "Count: " + "one two three " * 20}], "max_tokens": 1}
    tiny.post("/v1/chat/completions", body)
    timings = tiny.post("/v1/chat/completions", body)["timings"]
    assert timings["cache_n"] > 0.8 * (timings["cache_n"] + timings["prompt_n"])


# ---- refusals


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/completion", "/v1/chat/completions"])
def test_an_over_long_prompt_is_refused_with_both_numbers(tiny: Instance, path: str, stream: bool) -> None:
    text = "word " * 2000
    prompt = {"messages": [{"role": "user", "content": text}]} if "chat" in path else {"prompt": text}
    error = tiny.post(path, prompt | {"stream": stream}, status=400)["error"]
    assert error["kind"] == "exceed-context-size"
    assert error["n_ctx"] == N_CTX
    assert error["n_prompt_tokens"] >= 2000
    assert str(N_CTX) in error["message"]
    assert str(error["n_prompt_tokens"]) in error["message"]


def test_megabytes_of_prompt_are_refused_without_tokenising(tiny: Instance) -> None:
    began = time.monotonic()
    error = tiny.post("/completion", {"prompt": "x" * 20_000_000}, status=400)["error"]
    assert error["kind"] == "exceed-context-size"
    assert time.monotonic() - began < 2.0


# ---- text and tokens


@pytest.mark.parametrize(
    "text", ["Hello world", "zażółć gęślą jaźń", "日本語 🙂🙃", " leading\n\ttabs  ", ""]
)
def test_tokens_go_back_to_their_text(tiny: Instance, text: str) -> None:
    tokens = tiny.post("/tokenize", {"content": text})["tokens"]
    assert tiny.post("/detokenize", {"tokens": tokens})["content"] == text


def test_pieces_join_to_the_text(tiny: Instance) -> None:
    text = "<|im_start|>zażółć 🙂"
    tokens = tiny.post("/tokenize", {"content": text, "with_pieces": True})["tokens"]
    pieces = [token["piece"] for token in tokens]
    assert pieces[0] == "<|im_start|>"
    assert any(isinstance(piece, list) for piece in pieces)
    assert (
        b"".join(piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces).decode()
        == text
    )


def test_special_tokens_are_read_on_request(tiny: Instance) -> None:
    read = tiny.post("/tokenize", {"content": "<|im_start|>"})["tokens"]
    plain = tiny.post("/tokenize", {"content": "<|im_start|>", "parse_special": False})["tokens"]
    assert len(read) == 1
    assert len(plain) > 1


def test_the_models_own_template(tiny: Instance) -> None:
    prompt = tiny.post("/apply-template", {"messages": QUESTION})["prompt"]
    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert prompt.endswith("<|im_start|>assistant\n")
    assert tiny.get("/props")["chat_template"].startswith("{% for message in messages %}")


def test_props_tell_the_defaults_of_this_instance(tiny: Instance) -> None:
    document = tiny.get("/props")
    assert document["total_slots"] == 2
    assert document["default_generation_settings"]["n_ctx"] == N_CTX
    assert document["default_generation_settings"]["params"]["temperature"] == 0.7


# ---- callers who leave


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_who_leaves_frees_the_slot(tiny: Instance, stream: bool) -> None:
    with open_post(tiny, "/v1/completions", LONG | {"stream": stream}):
        wait_until(lambda: tiny.busy_slots() == 1)
    wait_until(lambda: tiny.busy_slots() == 0, within_s=1.0)


def test_a_caller_who_leaves_in_a_long_prefill_frees_the_slot(tiny: Instance) -> None:
    body = {"prompt": "word " * 1000, "max_tokens": 5, "cache_prompt": False}
    with open_post(tiny, "/completion", body):
        wait_until(lambda: tiny.busy_slots() == 1)
    wait_until(lambda: tiny.busy_slots() == 0, within_s=1.0)


def test_callers_who_leave_the_queue_are_never_run(tiny: Instance) -> None:
    wait_until(lambda: tiny.busy_slots() == 0)
    wait_until(lambda: last_stats(tiny)["slots_busy"] == 0)
    with open_post(tiny, "/v1/completions", LONG), open_post(tiny, "/v1/completions", LONG):
        wait_until(lambda: last_stats(tiny)["slots_busy"] == 2)
        cancelled = last_stats(tiny)["requests_cancelled"]
        waiting = [open_post(tiny, "/v1/completions", LONG) for _ in range(3)]
        wait_until(lambda: last_stats(tiny)["queued"] == 3)
        for connection in waiting:
            connection.close()
        wait_until(lambda: last_stats(tiny)["queued"] == 0, within_s=3.0)
        assert last_stats(tiny)["requests_cancelled"] == cancelled + 3
    wait_until(lambda: tiny.busy_slots() == 0)


def test_statistics_move_with_the_work(tiny: Instance) -> None:
    wait_until(lambda: last_stats(tiny)["slots_busy"] == 0)
    before = last_stats(tiny)
    tiny.post("/completion", {"prompt": STORY, "n_predict": 4})
    wait_until(lambda: last_stats(tiny)["requests_done"] == before["requests_done"] + 1, within_s=3.0)
    after = last_stats(tiny)
    assert after["steps"] >= before["steps"] + 4
    assert after["predicted_tokens"] == before["predicted_tokens"] + 4


def opened(instance: Instance, path: str, body: dict[str, Any]) -> requests.Response:
    """A POST whose answer is read as it comes."""
    return requests.post(instance.url + path, json=body, headers=instance.headers, stream=True, timeout=60)


def last_stats(instance: Instance) -> dict[str, Any]:
    return wait_until(instance.child.stats)[-1]


def open_post(instance: Instance, path: str, body: dict[str, Any]) -> socket.socket:
    """A POST whose answer nobody reads; closing it is leaving."""
    data = json.dumps(body).encode()
    host, port = instance.ready["address"].split(":")
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(head.encode() + data)
    return connection
