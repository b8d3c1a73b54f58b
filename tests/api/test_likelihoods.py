"""Likelihoods in the four forms that clients know, streamed and whole; always JSON, whatever the bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llamad.api.answer import Whole
from llamad.api.chat import ChatDialect
from llamad.api.generation import Generation
from llamad.api.native import NativeDialect, PromptText
from llamad.api.openai import CompletionDialect, Streaming
from llamad.api.sse import frame
from llamad.engine.vocabulary import Likelihood, Likely, Text, Wanted
from tests.api.test_answers import BY_EOS, HEAD
from tests.api.test_parsing import chat, completion, refusal

FOX = "🦊".encode()
TOLD = (
    Likelihood(5, b"A", -0.5, (Likely(5, b"A", -0.5), Likely(6, FOX[:2], -2.0))),
    Likelihood(6, FOX[:2], -1.0),
    Likelihood(7, FOX[2:], -0.25),
    Likelihood(2, b"", -9999.0),
)
CONTENT = [
    {
        "id": 5,
        "token": "A",
        "bytes": [65],
        "logprob": -0.5,
        "top_logprobs": [
            {"id": 5, "token": "A", "bytes": [65], "logprob": -0.5},
            {"id": 6, "token": "", "bytes": [0xF0, 0x9F], "logprob": -2.0},
        ],
    },
    {"id": 6, "token": "", "bytes": [0xF0, 0x9F], "logprob": -1.0, "top_logprobs": []},
    {"id": 7, "token": "��", "bytes": [0xA6, 0x8A], "logprob": -0.25, "top_logprobs": []},
    {"id": 2, "token": "", "bytes": [], "logprob": -9999.0, "top_logprobs": []},
]


def wanted(**fields: Any) -> Wanted | None:
    return chat(**fields).generation.wanted


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"n_probs": 0}, None),
        ({"top_logprobs": 0}, None),
        ({"logprobs": True}, Wanted(20)),
        ({"logprobs": True, "top_logprobs": 0}, Wanted(0)),
        ({"logprobs": True, "top_logprobs": 3}, Wanted(3)),
        ({"n_probs": 5}, Wanted(5)),
        ({"n_probs": 5, "post_sampling_probs": True}, Wanted(5, after_sampling=True)),
        ({"logprobs": True, "n_probs": 2}, Wanted(2)),
    ],
    ids=str,
)
def test_what_is_wanted(fields: dict[str, Any], expected: Wanted | None) -> None:
    assert wanted(**fields) == expected


def test_completions_say_it_with_a_number() -> None:
    assert completion("x", logprobs=0).generation.wanted == Wanted(0)
    assert completion("x", logprobs=5).generation.wanted == Wanted(5)
    assert completion("x", logprobs=None).generation.wanted is None


@pytest.mark.parametrize(
    "fields",
    [
        {"top_logprobs": 3},
        {"top_logprobs": 3, "logprobs": False},
        {"logprobs": "yes"},
        {"logprobs": True, "top_logprobs": -1},
        {"logprobs": True, "top_logprobs": 100_000},
        {"n_probs": -1},
        {"post_sampling_probs": 1},
    ],
    ids=str,
)
def test_what_is_wrong_is_refused(fields: dict[str, Any]) -> None:
    assert refusal(chat, **fields).body()["error"]["param"] in fields


def test_a_whole_chat() -> None:
    document = ChatDialect(HEAD, Streaming()).whole([Whole("A🦊", BY_EOS, TOLD)])
    assert document["choices"][0]["logprobs"] == {"content": CONTENT}
    assert json.loads(frame(document)[6:])["choices"][0]["logprobs"] == {"content": CONTENT}


def test_a_chat_stream_tells_with_the_text() -> None:
    dialect = ChatDialect(HEAD, Streaming(wanted=True))
    (choice,) = dialect.piece(0, Text(7, "A", 1, TOLD[:1]))[0]["choices"]
    assert choice["logprobs"] == {"content": CONTENT[:1]}
    assert choice["delta"] == {"content": "A"}
    assert "logprobs" not in dialect.piece(0, Text(7, "B"))[0]["choices"][0]


def test_a_whole_completion_has_columns_too() -> None:
    document = CompletionDialect(HEAD, Streaming()).whole([Whole("A🦊", BY_EOS, TOLD)])
    assert document["choices"][0]["logprobs"] == {
        "content": CONTENT,
        "tokens": ["A", "", "��", ""],
        "token_logprobs": [-0.5, -1.0, -0.25, -9999.0],
        "top_logprobs": [{"A": -0.5, "": -2.0}, {}, {}, {}],
        "text_offset": [0, 1, 1, 2],
    }


def test_offsets_of_a_completion_stream_go_on() -> None:
    dialect = CompletionDialect(HEAD, Streaming(wanted=True))
    offsets = [
        dialect.piece(index, Text(7, text, 1, TOLD[:1]))[0]["choices"][0]["logprobs"]["text_offset"]
        for index, text in ((0, "A"), (1, "Abc"), (0, "A"), (1, "A"))
    ]
    assert offsets == [[0], [0], [1], [3]]
    assert dialect.piece(0, Text(7, "B"))[0]["choices"][0]["logprobs"] is None


def test_llama_cpps_own_answer() -> None:
    dialect = NativeDialect(HEAD, [PromptText(3, "x")], Generation())
    assert dialect.whole([Whole("A🦊", BY_EOS, TOLD)])["completion_probabilities"] == CONTENT
    assert dialect.piece(0, Text(7, "A", 1, TOLD[:1]))[0]["completion_probabilities"] == CONTENT[:1]
    assert "completion_probabilities" not in dialect.piece(0, Text(7, "A"))[0]


def test_after_sampling_the_names_say_so() -> None:
    told = Likelihood(5, b"A", 0.75, (Likely(5, b"A", 0.75),), after_sampling=True)
    document = NativeDialect(HEAD, [PromptText(3, "x")], Generation()).whole([Whole("A", BY_EOS, (told,))])
    assert document["completion_probabilities"] == [
        {
            "id": 5,
            "token": "A",
            "bytes": [65],
            "prob": 0.75,
            "top_probs": [{"id": 5, "token": "A", "bytes": [65], "prob": 0.75}],
        }
    ]
