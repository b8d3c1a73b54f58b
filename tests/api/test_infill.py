"""Filling in: how a prompt is laid out, what of it is cut, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.api.generation import Generation
from llamad.api.infill import (
    EXTRA_MAX,
    WINDOW_TOKENS,
    InfillRequest,
    infill_prompt,
    parse_infill,
    require_fim,
)
from llamad.engine.forms import FimTokens
from llamad.errors import LlamadError, RequestError
from tests.api.vocabulary_for_tests import BOS, ByteVocabulary

PLAIN = FimTokens(1000, 1001, 1002)
WHOLE = FimTokens(1000, 1001, 1002, 1003, 1004)
NAMES = {1000: "<PRE>", 1001: "<SUF>", 1002: "<MID>", 1003: "<REP>", 1004: "<SEP>", BOS: "<BOS>"}


class Vocabulary(ByteVocabulary):
    def __init__(self, n_ctx: int = 4096) -> None:
        self.n_ctx = n_ctx


def parsed(prefix: Any = "before", suffix: Any = "after", n_ctx: int = 4096, **fields: Any) -> InfillRequest:
    body = {"input_prefix": prefix, "input_suffix": suffix, **fields}
    return parse_infill(body, Generation(), Vocabulary(n_ctx))


def shown(tokens: tuple[int, ...]) -> str:
    return "".join(NAMES.get(token) or chr(token) for token in tokens)


def laid_out(fim: FimTokens = PLAIN, n_ctx: int = 4096, suffix_first: bool = False, **fields: Any) -> str:
    return shown(infill_prompt(parsed(n_ctx=n_ctx, **fields), fim, Vocabulary(n_ctx), suffix_first))


def test_the_gap_between_prefix_and_suffix() -> None:
    assert laid_out() == "<BOS><PRE>before<SUF>after<MID>"
    assert laid_out(suffix_first=True) == "<BOS><SUF>after<PRE>before<MID>"


def test_a_begun_answer_ends_the_prefix() -> None:
    assert laid_out(prompt=" and") == "<BOS><PRE>before and<SUF>after<MID>"


def test_token_ids_may_be_among_the_texts() -> None:
    assert laid_out(prefix=["x", 121, "z"], suffix=[]) == "<BOS><PRE>xyz<SUF><MID>"


EXTRA = [{"text": "A text.", "filename": "a.py"}, {"text": "B text."}]


def test_other_files_come_first() -> None:
    assert laid_out(WHOLE, input_extra=EXTRA) == (
        "<REP>myproject\n<SEP>a.py\nA text.<SEP>tmp\nB text.<SEP>filename\n<BOS><PRE>before<SUF>after<MID>"
    )
    assert laid_out(PLAIN, input_extra=EXTRA) == (
        "\n\n--- snippet ---\n\nA text.\n\n--- snippet ---\n\nB text.<BOS><PRE>before<SUF>after<MID>"
    )


def test_what_is_far_from_the_gap_is_cut() -> None:
    made = laid_out(n_ctx=400, prefix="p" * 300 + "P", suffix="S" + "s" * 300, n_predict=0, prompt="!")
    window = 400 - 5
    assert made.startswith("<BOS><PRE>p")
    assert "P!<SUF>Ss" in made
    assert made.count("p") + 1 == 3 * (window // 4)
    assert made.count("s") + 1 == window // 4 - 3


def test_files_get_what_is_left_and_the_first_ones_are_cut() -> None:
    extra = [{"text": "a" * 100, "filename": "a"}, {"text": "b" * 100, "filename": "b"}]
    made = laid_out(n_ctx=180, n_predict=20, input_extra=extra)
    assert made.count("b") == 101
    assert 0 < made.count("a") < 101
    assert (
        len(infill_prompt(parsed(n_ctx=180, n_predict=20, input_extra=extra), PLAIN, Vocabulary(180))) == 160
    )


def test_a_large_context_does_not_make_the_window_larger() -> None:
    made = laid_out(n_ctx=100_000, prefix="p" * 9000, suffix="s" * 9000)
    assert made.count("p") == 3 * WINDOW_TOKENS // 4
    assert made.count("s") == WINDOW_TOKENS // 4 - 2


@given(
    st.integers(16, 600),
    st.integers(0, 900),
    st.integers(0, 900),
    st.integers(0, 3),
    st.integers(-1, 2000),
    st.booleans(),
)
def test_there_is_always_room_for_an_answer(
    n_ctx: int, prefix: int, suffix: int, files: int, n_predict: int, suffix_first: bool
) -> None:
    request = parsed(
        "p" * prefix,
        "s" * suffix,
        n_ctx,
        n_predict=n_predict,
        input_extra=[{"text": "e" * 200}] * files,
    )
    made = infill_prompt(request, WHOLE, Vocabulary(n_ctx), suffix_first)
    answer = n_ctx // 4 if n_predict < 0 else min(n_predict, n_ctx // 4)
    assert len(made) <= n_ctx - answer
    assert [token for token in made if token >= 1000 and token not in (1003, 1004)] == (
        [1001, 1000, 1002] if suffix_first else [1000, 1001, 1002]
    )
    assert made[-1] == 1002


def test_very_long_texts_are_cut_before_they_are_read() -> None:
    request = parsed(prefix="x" * 10_000_000 + "P", input_extra=[{"text": "e" * 10_000_000}])
    assert request.chars < 2_000_000
    assert str(request.prefix[0]).endswith("P")


def test_fields_of_completions() -> None:
    request = parsed(
        n_predict=7, stop=["\n"], stream=True, t_max_predict_ms=500, top_k=3, samplers=["top_k", "infill"]
    )
    generation = request.generation
    assert (generation.max_tokens, generation.stop, generation.time_limit_ms) == (7, ("\n",), 500)
    assert generation.sampling.samplers == ("top_k", "infill")
    assert request.streaming.wanted


def test_what_editors_send() -> None:
    """llama.vim's request."""
    request = parsed(
        input_extra=EXTRA,
        prompt="x",
        n_predict=128,
        stop=[],
        n_indent=4,
        top_k=40,
        top_p=0.90,
        stream=False,
        samplers=["top_k", "top_p", "infill"],
        cache_prompt=True,
        t_max_prompt_ms=500,
        t_max_predict_ms=1000,
        response_fields=["content", "timings/prompt_n", "truncated", "tokens_cached"],
    )
    assert request.generation.n_indent == 4


def test_models_that_cannot() -> None:
    require_fim(PLAIN)
    with pytest.raises(LlamadError, match="no suffix and no middle token") as caught:
        require_fim(FimTokens(prefix=5))
    assert (caught.value.status, caught.value.kind) == (501, "not-supported")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input_prefix": None}, "input_prefix"),
        ({"input_suffix": None}, "input_suffix"),
        ({"input_prefix": 5}, "input_prefix"),
        ({"input_suffix": [1.5]}, "input_suffix"),
        ({"prompt": ["x"]}, "prompt"),
        ({"input_extra": "x"}, "input_extra"),
        ({"input_extra": ["x"]}, "input_extra[0]"),
        ({"input_extra": [{"filename": "x"}]}, "input_extra[0].text"),
        ({"input_extra": [{"text": "x", "filename": 5}]}, "input_extra[0].filename"),
        ({"input_extra": [{"text": "x"}] * (EXTRA_MAX + 1)}, "input_extra"),
        ({"tools": [{}]}, "tools"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_refusal_names_the_field(fields: dict[str, Any], param: str) -> None:
    body = {"input_prefix": "a", "input_suffix": "b", **fields}
    with pytest.raises(RequestError) as caught:
        parse_infill(body, Generation(), Vocabulary())
    assert caught.value.details["param"] == param
