"""What is told beside the text, where a request asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from llamad.api.answer import Dialect, Head, Whole
from llamad.api.chat import ChatDialect
from llamad.api.extras import Extras, chosen, parse_extras
from llamad.api.fields import Fields
from llamad.api.generation import Generation
from llamad.api.native import NativeDialect, PromptText
from llamad.api.openai import CompletionDialect, Streaming
from llamad.api.verbose import Verbose
from llamad.engine.vocabulary import Finished, Progress, Text, Timings
from llamad.errors import RequestError

HEAD = Head("cmpl-1", 1733000000, "m", "b1")
COST = Timings(prompt_tokens=10, cached_tokens=4, prompt_ms=60.0, predicted_tokens=5, predicted_ms=100.0)
FINISHED = Finished(7, "stop", "", COST, slot=2, ids=(9,))
STREAM = Streaming(wanted=True)


def native(extras: Extras = Extras()) -> NativeDialect:  # noqa: B008 - frozen
    return NativeDialect(HEAD, [PromptText(10, "Hi")], Generation(extras=extras))


DIALECTS: list[Dialect] = [ChatDialect(HEAD, STREAM), CompletionDialect(HEAD, STREAM), native()]


def test_a_request_that_says_nothing_gets_nothing_more() -> None:
    assert parse_extras(Fields({})) == Extras()


def test_what_a_request_asks_for() -> None:
    document = {
        "timings_per_token": True,
        "return_progress": True,
        "return_tokens": True,
        "verbose": True,
        "response_fields": ["content", "timings/prompt_n"],
    }
    assert parse_extras(Fields(document)) == Extras(True, True, True, True, ("content", "timings/prompt_n"))


@pytest.mark.parametrize("value", ["content", [1], {"a": 1}, ["x"] * 300])
def test_response_fields_are_names(value: Any) -> None:
    with pytest.raises(RequestError, match="response_fields"):
        parse_extras(Fields({"response_fields": value}))


def test_fields_are_chosen_by_their_paths() -> None:
    document = {"content": "x", "timings": {"prompt_n": 3, "cache_n": 1}, "stop": True}
    assert chosen(document, ()) is document
    assert chosen(document, ("content", "timings/prompt_n", "timings/none", "stop/x", "nowhere")) == {
        "content": "x",
        "timings/prompt_n": 3,
    }


def test_only_the_last_document_of_a_stream_has_chosen_fields() -> None:
    dialect = native(Extras(response_fields=("stop_type",)))
    assert dialect.piece(0, Text(7, "x"))[0]["content"] == "x"
    assert dialect.ending(0, FINISHED) == [{"stop_type": "eos"}]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: type(dialect).__name__)
def test_timings_come_with_each_text_that_has_them(dialect: Dialect) -> None:
    assert "timings" not in dialect.piece(0, Text(7, "x"))[0]
    assert dialect.piece(0, Text(7, "x", timings=COST))[0]["timings"]["prompt_n"] == 6


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: type(dialect).__name__)
def test_progress_counts_what_was_there_before(dialect: Dialect) -> None:
    (document,) = dialect.progress(0, Progress(7, total=10, cached=4, processed=8, spent_ms=12.6))
    assert document["prompt_progress"] == {"total": 10, "cache": 4, "processed": 8, "time_ms": 13}
    assert "timings" not in document


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: type(dialect).__name__)
def test_timings_come_with_progress_that_has_them(dialect: Dialect) -> None:
    so_far = Timings(prompt_tokens=8, cached_tokens=4, prompt_ms=12.6)
    (document,) = dialect.progress(0, Progress(7, 10, 4, 8, 12.6, so_far))
    assert (document["timings"]["prompt_n"], document["timings"]["predicted_n"]) == (4, 0)


def test_whole_answers_have_their_tokens_on_request_and_streams_always() -> None:
    whole = [Whole("x", FINISHED, ids=(5, 9))]
    assert native().whole(whole)["tokens"] == ()
    assert native(Extras(tokens=True)).whole(whole)["tokens"] == (5, 9)
    dialect = native()
    assert dialect.piece(0, Text(7, "x", ids=(5,)))[0]["tokens"] == (5,)
    assert dialect.ending(0, FINISHED)[0]["tokens"] == (9,)


@pytest.mark.parametrize("dialect", DIALECTS[:2], ids=lambda dialect: type(dialect).__name__)
def test_verbose_answers_have_llama_cpps_own_inside(dialect: Dialect) -> None:
    verbose = Verbose(dialect, native())
    assert verbose.framing is dialect.framing
    assert verbose.opening() == dialect.opening()
    assert verbose.closing([FINISHED]) == dialect.closing([FINISHED])
    assert verbose.whole([Whole("x", FINISHED)])["__verbose"]["prompt"] == "Hi"
    assert verbose.piece(0, Text(7, "x"))[0]["__verbose"]["content"] == "x"
    assert verbose.progress(0, Progress(7, 10, 4, 8, 1.0))[0]["__verbose"]["prompt_progress"]["total"] == 10
    assert verbose.ending(0, FINISHED)[0]["__verbose"]["stop"] is True
