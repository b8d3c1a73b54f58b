"""Prefixes: the fast comparison equals the naive one; slots are chosen for what they save; windows are respected."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.prefix import STRANGER_MIN, Held, choose, common, has_window, is_steady

tokens = st.lists(st.integers(0, 2), max_size=40)


@given(tokens, tokens, tokens)
def test_common_is_the_longest_common_prefix(shared: list[int], left: list[int], right: list[int]) -> None:
    left, right = shared + left, shared + right
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    assert common(left, right) == len(list(pairs))


def test_a_conversation_goes_back_to_its_own_slot() -> None:
    held = [Held(0, [1, 2, 3, 4], 5), Held(1, [1, 2, 9, 9], 6)]
    assert choose(held, [1, 2, 3, 4, 7]) == 0
    assert choose(held, [1, 2, 9, 9, 7]) == 1


def test_a_shared_beginning_does_not_cost_a_conversation_its_slot() -> None:
    conversation = Held(0, [1, 2, *range(100, 110)], 5)
    assert choose([conversation, Held(1, [], -1)], [1, 2, 50, 51]) == 1


def test_otherwise_the_least_recently_used_slot() -> None:
    assert choose([Held(0, [1], 5), Held(1, [2], 3), Held(2, [3], 9)], [7, 8]) == 1
    assert choose([Held(0, [], -1), Held(1, [], -1)], [7, 8]) == 0


def test_too_small_a_part_of_the_prompt_is_not_continued() -> None:
    held = [Held(0, [1, 2], 5), Held(1, [], -1)]
    assert choose(held, [1, 2, *range(50, 80)], similarity=0.0) == 0
    assert choose(held, [1, 2, *range(50, 80)], similarity=0.1) == 1
    assert choose(held, [1, 2, *range(50, 60)], similarity=0.1) == 0


@pytest.mark.parametrize(
    ("n_past", "pos_min", "expected"),
    [
        (1000, 0, True),
        (1000, 488, True),
        (1000, 489, False),
        (300, 0, True),
        (300, 1, False),
        (300, -1, False),
    ],
)
def test_a_window_that_has_moved_on_is_not_reused(n_past: int, pos_min: int, expected: bool) -> None:
    assert has_window(n_past, pos_min, 512) is expected


@pytest.mark.parametrize(
    ("n_common", "n_tokens", "n_held", "expected"),
    [
        (40, 40, 80, True),  # the same request again
        (39, 40, 80, True),
        (80, 200, 80, True),  # the next turn
        (30, 40, 80, False),  # only the template
        (STRANGER_MIN, 4000, 4000, True),
    ],
)
def test_what_a_repeatable_request_takes(n_common: int, n_tokens: int, n_held: int, expected: bool) -> None:
    assert is_steady(n_common, n_tokens, n_held) is expected
