"""Answers, document by document, as llama-server gives them."""

from __future__ import annotations

import json
from dataclasses import replace

from llamad.api.answer import Head, Whole, timings
from llamad.api.chat import ChatDialect
from llamad.api.generation import Generation
from llamad.api.native import NativeDialect, PromptText, token_piece
from llamad.api.openai import CompletionDialect, Streaming
from llamad.api.sampling import FORBIDDEN
from llamad.api.sse import BARE, OPENAI, frame, named_frame
from llamad.engine.vocabulary import Finished, SamplingParams, Text, Timings

HEAD = Head("chatcmpl-1", 1733000000, "the-alias", "b123")
COST = Timings(prompt_tokens=10, cached_tokens=4, prompt_ms=60.0, predicted_tokens=5, predicted_ms=100.0)
BY_EOS = Finished(7, "stop", "", COST, slot=2)
BY_WORD = Finished(7, "stop", "END", COST, slot=2, seed=99)
BY_LENGTH = Finished(8, "length", "", COST, slot=0)

USAGE = {
    "completion_tokens": 5,
    "prompt_tokens": 10,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 4},
}
TIMINGS = {
    "cache_n": 4,
    "prompt_n": 6,
    "prompt_ms": 60.0,
    "prompt_per_token_ms": 10.0,
    "prompt_per_second": 100.0,
    "predicted_n": 5,
    "predicted_ms": 100.0,
    "predicted_per_token_ms": 25.0,
    "predicted_per_second": 40.0,
}
PROMPT = "A prompt"
COMMON = {"created": 1733000000, "id": "chatcmpl-1", "model": "the-alias", "system_fingerprint": "b123"}


def chunk(*choices: dict, **more) -> dict:
    return {"choices": list(choices), **COMMON, "object": "chat.completion.chunk", **more}


def test_a_plain_chat_answer() -> None:
    assert ChatDialect(HEAD, Streaming()).whole([Whole("Hello", BY_EOS)]) == {
        "choices": [
            {"finish_reason": "stop", "index": 0, "message": {"role": "assistant", "content": "Hello"}}
        ],
        **COMMON,
        "object": "chat.completion",
        "usage": USAGE,
        "timings": TIMINGS,
    }


def test_a_chat_stream() -> None:
    dialect = ChatDialect(HEAD, Streaming(wanted=True))
    assert dialect.opening() == [
        chunk({"finish_reason": None, "index": 0, "delta": {"role": "assistant", "content": None}})
    ]
    assert dialect.piece(0, Text(7, "He")) == [
        chunk({"finish_reason": None, "index": 0, "delta": {"content": "He"}})
    ]
    assert dialect.ending(0, BY_LENGTH) == [
        chunk({"finish_reason": "length", "index": 0, "delta": {}}, timings=TIMINGS)
    ]
    assert dialect.closing([BY_LENGTH]) == []
    assert dialect.framing is OPENAI


def test_usage_comes_last_with_no_choices_when_asked_for() -> None:
    dialect = ChatDialect(HEAD, Streaming(wanted=True, include_usage=True))
    assert "timings" not in dialect.ending(0, BY_EOS)[0]
    assert dialect.closing([BY_EOS]) == [chunk(usage=USAGE, timings=TIMINGS)]


def test_a_plain_completion_of_two_prompts_sums_the_usage() -> None:
    document = CompletionDialect(HEAD, Streaming()).whole([Whole("a", BY_EOS), Whole("b", BY_LENGTH)])
    assert document == {
        "choices": [
            {"text": "a", "index": 0, "logprobs": None, "finish_reason": "stop"},
            {"text": "b", "index": 1, "logprobs": None, "finish_reason": "length"},
        ],
        **COMMON,
        "object": "text_completion",
        "usage": {
            "completion_tokens": 10,
            "prompt_tokens": 20,
            "total_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
    }


def test_a_completion_stream() -> None:
    dialect = CompletionDialect(HEAD, Streaming(wanted=True))
    assert dialect.opening() == []
    assert dialect.piece(1, Text(8, "x"))[0]["choices"] == [
        {"text": "x", "index": 1, "logprobs": None, "finish_reason": None}
    ]
    (ending,) = dialect.ending(1, BY_WORD)
    assert ending["choices"] == [{"text": "", "index": 1, "logprobs": None, "finish_reason": "stop"}]
    assert ending["timings"] == TIMINGS


def native(generation: Generation, *prompts: str) -> NativeDialect:
    texts = [PromptText(10, prompt) for prompt in prompts or (PROMPT,)]
    return NativeDialect(HEAD, texts, generation)


def test_a_native_answer() -> None:
    document = native(Generation(max_tokens=5), "Say it").whole([Whole("Hello", BY_WORD)])
    settings = document.pop("generation_settings")
    assert settings["n_predict"] == 5
    assert settings["temperature"] == 0.8
    assert settings["seed"] == 99
    assert document == {
        "index": 0,
        "content": "Hello",
        "tokens": (),
        "id_slot": 2,
        "stop": True,
        "model": "the-alias",
        "tokens_predicted": 5,
        "tokens_evaluated": 10,
        "prompt": "Say it",
        "has_new_line": False,
        "truncated": False,
        "stop_type": "word",
        "stopping_word": "END",
        "tokens_cached": 4,
        "timings": TIMINGS,
    }


def test_native_stop_types() -> None:
    dialect = native(Generation())
    assert [dialect.ending(0, last)[0]["stop_type"] for last in (BY_EOS, BY_WORD, BY_LENGTH)] == [
        "eos",
        "word",
        "limit",
    ]


def test_native_answers_to_several_prompts_are_an_array() -> None:
    documents = native(Generation(), PROMPT, PROMPT).whole([Whole("a", BY_EOS), Whole("b", BY_LENGTH)])
    assert [document["content"] for document in documents] == ["a", "b"]


def test_a_native_stream_counts_as_it_goes() -> None:
    dialect = native(Generation(), PROMPT, PROMPT)
    dialect.piece(1, Text(8, "x\n", 2, ids=(5, 6), slot=3))
    assert dialect.piece(1, Text(8, "y", 1, ids=(7,), slot=3)) == [
        {
            "index": 1,
            "content": "y",
            "tokens": (7,),
            "stop": False,
            "id_slot": 3,
            "tokens_predicted": 3,
            "tokens_evaluated": 10,
        }
    ]
    assert dialect.ending(1, BY_LENGTH)[0]["has_new_line"] is True
    assert dialect.ending(0, BY_LENGTH)[0]["has_new_line"] is False
    assert dialect.framing is BARE


def test_a_frame_is_one_line_of_json() -> None:
    data = frame({"text": "a\n\nb żółć"})
    assert data.startswith(b"data: {")
    assert data.endswith(b"}\n\n")
    assert data.count(b"\n") == 2
    assert json.loads(data[6:]) == {"text": "a\n\nb żółć"}
    assert OPENAI.done == b"data: [DONE]\n\n"
    assert not BARE.done


def test_a_named_frame_is_called_what_its_document_is() -> None:
    assert named_frame({"type": "ping"}) == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_settings_of_a_forbidden_token_are_json() -> None:
    generation = Generation(sampling=SamplingParams(logit_bias=((5, FORBIDDEN), (6, 1.0))))
    settings = json.loads(frame(native(generation).ending(0, BY_EOS)[0])[6:])["generation_settings"]
    assert settings["logit_bias"] == [{"token": 5, "bias": False}, {"token": 6, "bias": 1.0}]


def test_a_piece_of_half_a_character_is_its_bytes() -> None:
    assert token_piece(5, "ż".encode()) == {"id": 5, "piece": "ż"}
    assert token_piece(6, b"\xc5") == {"id": 6, "piece": [0xC5]}


# ---- several answers to one prompt

SIBLING = Finished(
    8, "stop", "", Timings(10, 10, prompt_ms=1.0, predicted_tokens=3, predicted_ms=1.0, shared=True), slot=1
)


def test_several_choices_of_a_chat_count_their_prompt_once() -> None:
    document = ChatDialect(HEAD, Streaming(), n=2).whole([Whole("a", BY_EOS), Whole("b", SIBLING)])
    assert [(choice["index"], choice["message"]["content"]) for choice in document["choices"]] == [
        (0, "a"),
        (1, "b"),
    ]
    assert document["usage"] == USAGE | {"completion_tokens": 8, "total_tokens": 18}


def test_each_choice_of_a_chat_stream_begins_with_its_role() -> None:
    opening = ChatDialect(HEAD, Streaming(wanted=True), n=2).opening()
    assert [document["choices"][0]["index"] for document in opening] == [0, 1]
    assert all(document["choices"][0]["delta"]["role"] == "assistant" for document in opening)


def test_native_answers_to_one_prompt_are_an_array() -> None:
    dialect = NativeDialect(HEAD, [PromptText(10, "x")] * 2, Generation(n=2))
    documents = dialect.whole([Whole("a", BY_EOS), Whole("b", SIBLING)])
    assert [(document["index"], document["content"]) for document in documents] == [(0, "a"), (1, "b")]


def test_a_single_token_has_no_rate() -> None:
    rates = timings(replace(COST, predicted_tokens=1, predicted_ms=0.01))
    assert (rates["predicted_per_token_ms"], rates["predicted_per_second"]) == (0.0, 0.0)
    assert timings(Timings())["predicted_per_second"] == 0.0
