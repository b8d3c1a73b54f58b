"""The same request to an instance itself and through the port: equal bytes back.

Both sides are fresh and of the same settings and get the same requests in the same order, so that their
prompt caches go the same way. All generation is greedy and seeded. What may differ is masked: ids, the time, and what took how long. The front may
add headers of its own; it may neither drop nor change one of the instance's.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.harness import Llamad
from tests.process.child_kit import Child

pytestmark = pytest.mark.model

TOKEN = "the-instance-token"
N_CTX = 1024
GREEDY = {"model": "smol", "temperature": 0, "seed": 1, "max_tokens": 6}
CHAT = GREEDY | {"messages": [{"role": "user", "content": "Say naïve, 漢字 and 🦙."}]}
TEXT = GREEDY | {"prompt": "One, two, three,"}
NATIVE = {"model": "smol", "temperature": 0, "seed": 1, "n_predict": 6, "prompt": "A, B, C,"}
STREAM = {"stream": True}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
COLOUR = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

# Of a hop, or said by each server for itself.
UNCOMPARED = {"connection", "keep-alive", "transfer-encoding", "date", "server", "x-request-id"}
# What the front says on top.
ADDED = {"vary", "x-queue-position", "request-id"}

MASKS = (
    (re.compile(rb'"id":"(chatcmpl|cmpl)-[0-9a-f]{32}"'), rb'"id":"\1"'),
    (re.compile(rb'"(created|started_at|completed_at)":\d+'), rb'"\1":0'),
    (re.compile(rb'"((?:prompt|predicted)_(?:ms|per_token_ms|per_second))":[0-9.e+-]+'), rb'"\1":0'),
)


class Answer(NamedTuple):
    """One answer with its chunks put together; header names in lower case, in the order of the wire."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Side:
    """One of the two ways to an instance."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, method: str, target: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        try:
            connection.request(method, target, body, self._headers | headers)
            response = connection.getresponse()
            data = response.read()
            return Answer(
                response.status, [(name.lower(), value) for name, value in response.getheaders()], data
            )
        finally:
            connection.close()


@pytest.fixture(scope="module")
def sides(smollm2: Path) -> Iterator[tuple[Side, Side]]:
    """The instance's port, and a daemon's."""
    start = {
        "model": "smol",
        "path": str(smollm2),
        "options": {"ctx-size": N_CTX, "parallel": 2},
        "token": TOKEN,
        "transport": "tcp",
        "alias": [],
    }
    presets = f"version = 1\n[smol]\nmodel = {smollm2}\nc = {N_CTX}\nnp = 2\nload-on-startup = true\n"
    with Child("instance", start) as child, Llamad(presets) as daemon:
        address = child.wait_state("ready")["address"]
        daemon.wait_state("smol", "loaded")
        yield Side(address, TOKEN), Side(daemon.url.removeprefix("http://"), "")


def masked(body: bytes) -> bytes:
    for pattern, replacement in MASKS:
        body = pattern.sub(replacement, body)
    return body


def compared(answer: Answer) -> list[tuple[str, str]]:
    """The headers that have to be equal. A length counts masked digits, too: it is checked against its own body."""
    lengths = [int(value) for name, value in answer.headers if name == "content-length"]
    assert lengths in ([], [len(answer.body)])
    shown = [
        (name, "as long as it is" if name == "content-length" else value) for name, value in answer.headers
    ]
    return sorted(pair for pair in shown if pair[0] not in UNCOMPARED)


def assert_equal(
    sides: tuple[Side, Side],
    method: str,
    target: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Ask both, and give the port's answer."""
    direct, port = (side.ask(method, target, body, headers or {}) for side in sides)
    assert port.status == direct.status, port.body
    assert masked(port.body) == masked(direct.body)
    added = [pair for pair in compared(port) if pair[0] not in dict(direct.headers)]
    assert [pair for pair in compared(port) if pair not in added] == compared(direct)
    assert {name for name, _ in added} <= ADDED
    assert dict(port.headers)["x-request-id"]
    assert ("transfer-encoding" in dict(port.headers)) == ("transfer-encoding" in dict(direct.headers))
    return port


def document(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/chat/completions", CHAT),
        ("/v1/chat/completions", CHAT | USAGE),
        ("/v1/chat/completions", CHAT | STREAM | {"logprobs": True, "top_logprobs": 2}),
        ("/v1/chat/completions", CHAT | {"stop": ["!"]}),
        ("/v1/chat/completions", CHAT | {"response_format": {"type": "json_object", "schema": COLOUR}}),
        ("/v1/completions", TEXT),
        ("/v1/completions", TEXT | {"logprobs": 2}),
        ("/v1/completions", TEXT | USAGE),
        ("/v1/completions", TEXT | {"prompt": ["One, two,", "A, B,"]}),
        ("/completion", NATIVE),
        ("/completions", NATIVE),
        ("/completion", NATIVE | STREAM),
        ("/completion", NATIVE | {"n_probs": 2, "json_schema": COLOUR}),
        ("/tokenize", {"model": "smol", "content": "naïve 漢字 🦙", "with_pieces": True}),
        ("/tokenize", {"model": "smol", "content": "", "add_special": True}),
        ("/detokenize", {"model": "smol", "tokens": [504, 253, 1, 49151]}),
        ("/apply-template", CHAT),
    ],
)
def test_answers_are_equal(sides: tuple[Side, Side], path: str, body: dict[str, Any]) -> None:
    answer = assert_equal(sides, "POST", path, document(body))
    assert answer.status == 200, answer.body
    if body.get("stream"):
        assert answer.body.startswith(b"data: {")
        assert answer.body.endswith(b"\n\n")


@pytest.mark.parametrize("path", ["/props", "/slots", "/lora-adapters", "/props?x=%20%2F+y&", "/slots?"])
def test_reads_are_equal(sides: tuple[Side, Side], path: str) -> None:
    mark = "&" if "?" in path else "?"
    assert_equal(sides, "GET", f"{path}{mark}model=smol")


@pytest.mark.parametrize(
    "path",
    [
        "/infill", "/v1/embeddings", "/embeddings", "/embedding", "/v1/rerank", "/rerank", "/v1/reranking",
        "/reranking",
    ],
)  # fmt: skip
def test_what_is_not_served_is_refused_in_the_same_words(sides: tuple[Side, Side], path: str) -> None:
    assert assert_equal(sides, "POST", path, document({"model": "smol", "input": "x"})).status == 501


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses", "/responses", "/v1/responses/input_tokens", "/responses/input_tokens",
        "/v1/chat/completions/input_tokens", "/chat/completions/input_tokens", "/v1/messages",
        "/v1/messages/count_tokens",
    ],
)  # fmt: skip
def test_refusals_in_other_dialects(sides: tuple[Side, Side], path: str) -> None:
    assert (
        assert_equal(sides, "POST", path, document({"model": "smol", "input": 5, "messages": 5})).status
        == 400
    )


def test_orders_about_slots_are_the_instances_to_answer(sides: tuple[Side, Side]) -> None:
    assert_equal(sides, "POST", "/slots/0?model=smol&action=erase", b"{}")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT | {"temperature": "warm"}),
        ("/v1/chat/completions", CHAT | {"messages": []}),
        ("/v1/chat/completions", CHAT | {"messages": [{"role": "user"}]}),
        ("/v1/chat/completions", CHAT | {"grammar": "root ::= ("}),
        ("/v1/completions", TEXT | STREAM | {"prompt": "count " * 3000}),
        ("/v1/completions", TEXT | {"prompt": None}),
        ("/v1/completions", TEXT | {"echo": True}),
        ("/completion", NATIVE | {"n_predict": "many"}),
        ("/detokenize", {"model": "smol", "tokens": [1 << 40]}),
        ("/tokenize", {"model": "smol", "content": 7}),
        ("/apply-template", {"model": "smol"}),
    ],
)
def test_errors_are_equal(sides: tuple[Side, Side], path: str, body: dict[str, Any]) -> None:
    assert assert_equal(sides, "POST", path, document(body)).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"smol","prompt":"A, B, C,","n_predict":4,"temperature":0,"seed":1,"model":"smol"}',
        b' \r\n\t{ "n_predict" : 4, "temperature":0e0, "seed":1,\n"prompt":"\\u0041, B, C,", "model":"\\u0073mol" } \n',
        b'{"model":"smol","prompt":"\\ud83e\\udd99","n_predict":4,"temperature":0,"seed":1,"unknown":[1e400]}',
    ],
)
def test_odd_but_legal_json_reaches_the_instance_as_it_is(sides: tuple[Side, Side], body: bytes) -> None:
    assert_equal(sides, "POST", "/completion", body, {"Content-Type": "text/plain"})


@pytest.mark.parametrize("offset", [0, 60])  # in the midst of the first chunk, not of its time of creation
def test_the_replay_of_a_conversation_is_equal(sides: tuple[Side, Side], offset: int) -> None:
    """The ticket is what makes a conversation of it at the instance; the front drops a client's and says its own."""
    headers = {"X-Conversation-Id": f"equal-{offset}", "X-Llamad-Ticket": "7"}
    said = assert_equal(sides, "POST", "/v1/chat/completions", document(CHAT | STREAM), headers)
    target = f"/v1/stream?conv_id=equal-{offset}&from={offset}"
    replayed = assert_equal(sides, "GET", target, None, {"X-Llamad-Ticket": "7"})
    assert replayed.body == said.body[offset:]
