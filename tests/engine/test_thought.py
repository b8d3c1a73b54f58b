"""A bound on thoughts: where it counts, what it forces, and that it goes with other rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from llamad.engine.thought import BoundedThought
from llamad.engine.vocabulary import ThoughtLimit, Word
from tests.engine.bench import Bench, request
from tests.engine.fake import FakeBackend

ROW = np.zeros(256, np.float32)
BEGUN = ThoughtLimit(3, "", "</t>", "</t>")
CALLED = ThoughtLimit(6, "", "</t>", "</t>", others=("<c>",))
FREE = ThoughtLimit(3, "<t>", "</t>", ".</t>")


class Only:
    """A constraint to certain tokens, which remembers what it took."""

    complete = False

    def __init__(self, *tokens: int) -> None:
        self.tokens = tokens
        self.taken: list[int] = []

    def take(self, token: int) -> bool:
        if token in self.tokens:
            self.taken.append(token)
        return token in self.tokens

    def allowed(self, row: np.ndarray, k: int) -> np.ndarray:
        return np.array(self.tokens)


def bounded(limit: ThoughtLimit, inner: Only | None = None) -> BoundedThought:
    return BoundedThought(limit, limit.ending.encode(), lambda token: bytes([token]), inner)


def taken(constraint: BoundedThought, tokens: Sequence[int]) -> int:
    """How many it takes."""
    for count, token in enumerate(tokens):
        if not constraint.take(token):
            return count
    return len(tokens)


@pytest.mark.parametrize(
    ("limit", "text", "count"),
    [
        (BEGUN, "abcd", 3),
        (BEGUN, "abc</t>and all the rest", 23),
        (BEGUN, "</t>and all the rest", 3),
        (BEGUN, "abc</t><t>more than three", 25),
        (CALLED, "ab<c>and all the rest", 21),
        (CALLED, "ab<d>and all the rest", 6),
        (FREE, "no thought at all", 17),
        (FREE, "\n<t>abcd", 7),
        (FREE, "\n<t>abc.</t>the rest", 20),
        (FREE, "x<t>abcdefg", 11),
    ],
)
def test_a_thought_ends_when_its_tokens_are_spent(limit: ThoughtLimit, text: str, count: int) -> None:
    assert taken(bounded(limit), text.encode()) == count


def test_one_that_ends_in_time_is_not_bounded() -> None:
    limit = ThoughtLimit(9, "", "</t>", "</t>")
    assert taken(bounded(limit), b"ab</t>and all the rest") == 22


def test_only_the_ending_is_allowed_then() -> None:
    constraint = bounded(BEGUN)
    assert len(constraint.allowed(ROW, 0)) == 256
    assert taken(constraint, b"abc") == 3
    ending = []
    while len(allowed := constraint.allowed(ROW, 0)) == 1:
        ending.append(int(allowed[0]))
        assert constraint.take(ending[-1])
    assert bytes(ending) == b"</t>"


def test_another_constraint_holds_all_along() -> None:
    inner = Only(*b"ab</t>")
    constraint = bounded(BEGUN, inner)
    assert taken(constraint, b"abX") == 2
    assert list(constraint.allowed(ROW, 0)) == list(b"ab</t>")
    assert taken(constraint, b"b</t>a") == 6
    assert bytes(inner.taken) == b"abb</t>a"


@pytest.mark.parametrize("before", ["", "ab"])
def test_a_thought_ends_when_somebody_says_so(before: str) -> None:
    limit = replace(FREE, budget=99, enough=(enough := Word()))
    constraint = bounded(limit)
    assert taken(constraint, b"<t>" + before.encode()) == 3 + len(before)
    enough.said = True
    assert list(constraint.allowed(ROW, 0)) == list(b".")
    assert taken(constraint, b".</t>abc") == 8
    assert len(constraint.allowed(ROW, 0)) == 256


def test_what_is_said_when_nothing_is_thought_changes_nothing() -> None:
    limit = replace(FREE, budget=99, enough=(enough := Word()))
    constraint = bounded(limit)
    enough.said = True
    assert taken(constraint, b"an answer") == 9


def test_in_an_engine_an_answer_has_the_ending_in_its_place() -> None:
    bench = Bench(FakeBackend(n_slots=1))
    bench.submit(
        request(1, "hello", 12, thought=ThoughtLimit(4, "", "</t>", "!</t>")), request(2, "hello", 12)
    )
    bench.run()
    assert bench.text(1)[:4] == bench.text(2)[:4]
    assert bench.text(1)[4:9] == "!</t>"
    assert len(bench.text(1)) == 12
