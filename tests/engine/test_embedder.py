"""Requests for vectors on a toy model, one turn at a time: every vector is known."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.engine.backend import Outcome
from llamad.engine.shape import Embedding
from llamad.engine.vocabulary import Embedded, EmbedRequest, Finished
from tests.engine.bench import Bench, assert_answers, request
from tests.engine.fake import WIDTH, FakeBackend, hidden

BESIDE = range(4, 8)


def bench(
    pooling: str = "last", *, whole: bool = False, n_step: int = 64, n_ctx: int = 256, n_slots: int = 4
) -> Bench:
    how = Embedding(pooling, whole, n_step, n_ctx, BESIDE)
    return Bench(FakeBackend(n_slots=n_slots, n_ctx=n_ctx, n_step=max(n_ctx, n_step), embedding=how))


def wanted(tokens: Sequence[int], pooling: str = "last") -> np.ndarray:
    rows = np.array([hidden(tokens[: end + 1]) for end in range(len(tokens))], np.float32)
    return {"none": rows, "mean": rows.mean(axis=0), "cls": rows[0], "last": rows[-1], "rank": rows[-1, :1]}[
        pooling
    ]


def vectors(at: Bench, id: int) -> list[np.ndarray]:
    (last,) = (output for output in at.outputs if output.id == id)
    assert isinstance(last, Embedded), last
    return [np.frombuffer(vector, np.float32).reshape(-1, last.width) for vector in last.vectors]


def assert_vectors(at: Bench, *requests: EmbedRequest, pooling: str = "last") -> None:
    for each in requests:
        found = vectors(at, each.id)
        assert len(found) == len(each.inputs)
        for vector, tokens in zip(found, each.inputs, strict=True):
            assert vector.squeeze() == pytest.approx(wanted(tokens, pooling).squeeze(), rel=1e-5)


def inputs_of(seed: int, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    draw = random.Random(seed)
    return tuple(tuple(draw.randrange(256) for _ in range(size)) for size in sizes)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("pooling", ["none", "mean", "cls", "last", "rank"])
def test_inputs_of_all_sizes(pooling: str, whole: bool) -> None:
    at = bench(pooling, whole=whole)
    ask = EmbedRequest(1, inputs_of(1, [1, 200, 3, 64, 65, 2, 2, 2, 2, 2, 2, 256]))
    at.submit(ask)
    at.run()
    assert_vectors(at, ask, pooling=pooling)
    assert at.backend.n_cells == 0
    stats = at.engine.stats()
    assert (stats.requests_done, stats.prompt_tokens) == (1, sum(map(len, ask.inputs)))
    assert (stats.sequence_tokens_max, stats.generating_max) == (256, 0)
    assert stats.prompt_ms > 0
    assert stats.steps == len(at.backend.batches) < stats.busy_steps
    longest = max(sum(len(entry.tokens) for entry in batch) for batch in at.backend.batches)
    assert longest == (256 if whole else 64)


def test_short_inputs_share_batches() -> None:
    at = bench()
    at.submit(EmbedRequest(1, inputs_of(1, [5] * 40)))
    at.run()
    # As many as there are sequences.
    assert len(at.backend.batches) == 10


def test_requests_take_turns() -> None:
    at = bench()
    many, one = EmbedRequest(1, inputs_of(1, [9] * 400)), EmbedRequest(2, inputs_of(2, [9]))
    at.submit(many)
    at.turn(2)
    at.submit(one)
    at.turn(2)
    assert {output.id for output in at.outputs} == {2}
    at.run()
    assert_vectors(at, many, one)


def test_vectors_are_shortened_and_normalised() -> None:
    at = bench()
    at.submit(EmbedRequest(1, ((7, 8),), normalize=2, dimensions=2))
    at.run()
    (found,) = vectors(at, 1)
    short = wanted((7, 8))[:2]
    assert found[0] == pytest.approx(short / np.linalg.norm(short))
    assert found.shape == (1, 2)


def test_a_request_may_ask_for_another_pooling() -> None:
    at = bench("")
    at.submit(EmbedRequest(1, ((7, 8, 9),)), EmbedRequest(2, ((7, 8, 9),), pooling="mean"))
    at.run()
    assert vectors(at, 1)[0].shape == (3, WIDTH)
    assert vectors(at, 2)[0][0] == pytest.approx(wanted((7, 8, 9), "mean"))


def test_generation_and_vectors_go_side_by_side() -> None:
    at = bench(n_ctx=2000)
    talks = [request(id, f"prompt {id}", 30) for id in range(1, 4)]
    ask = EmbedRequest(9, inputs_of(3, [300, 20, 20]))
    at.submit(*talks)
    at.turn(3)
    at.submit(ask)
    before = at.engine.slots()[0].predicted_tokens
    at.turn(5)
    assert at.engine.slots()[0].predicted_tokens == before + 5
    at.run()
    assert_answers(at, talks)
    assert_vectors(at, ask)


def test_a_cancelled_request_leaves_nothing() -> None:
    at = bench()
    at.submit(EmbedRequest(1, inputs_of(1, [200] * 50)), EmbedRequest(2, inputs_of(2, [30] * 3)))
    at.turn(2)
    at.engine.cancel(1)
    at.run()
    assert {output.id for output in at.outputs} == {2}
    assert at.backend.n_cells == 0
    assert at.engine.stats().requests_cancelled == 1


def test_a_batch_is_interrupted_when_nobody_wants_it() -> None:
    at = bench()
    at.backend.on_decode = lambda: at.engine.cancel(1)
    at.submit(EmbedRequest(1, inputs_of(1, [9])))
    at.turn(3)
    assert at.outputs == []
    assert at.engine.stats().queued == 0


def test_a_batch_that_is_interrupted_for_others_begins_again() -> None:
    at = bench()
    at.backend.forced.extend([Outcome.ABORTED, Outcome.DONE, Outcome.ABORTED])
    ask = EmbedRequest(1, inputs_of(1, [100, 9]))
    at.submit(ask)
    at.run()
    assert_vectors(at, ask)


def test_what_idle_slots_remember_makes_room() -> None:
    at = bench(n_ctx=100)
    at.submit(request(1, "x" * 60, 5))
    at.run()
    ask = EmbedRequest(2, inputs_of(1, [90]))
    at.submit(ask)
    at.run()
    assert_vectors(at, ask)


def test_inputs_wait_for_those_that_generate() -> None:
    at = bench(n_ctx=100)
    talk, later = request(1, "x" * 60, 35), request(3, "y" * 60, 35)
    at.submit(talk)
    at.turn(2)
    ask = EmbedRequest(2, inputs_of(1, [90]))
    at.submit(ask, later)
    at.run()
    assert_answers(at, [talk, later])
    assert_vectors(at, ask)
    order = [output.id for output in at.outputs if isinstance(output, Embedded | Finished)]
    assert order == [1, 2, 3]


def test_inputs_that_do_not_fit_together_go_one_after_another() -> None:
    at = bench(whole=True, n_step=256, n_ctx=100)
    ask = EmbedRequest(1, inputs_of(1, [60, 60, 60, 30]))
    at.submit(ask)
    at.run()
    assert_vectors(at, ask)
    pieces = bench(n_ctx=100)
    pieces.submit(ask)
    pieces.run()
    assert_vectors(pieces, ask)


def test_the_one_that_is_refused_fails_alone() -> None:
    at = bench()
    at.backend.refuse_token = 255
    good = [EmbedRequest(id, inputs_of(id, [5, 5])) for id in range(1, 4)]
    good = [
        EmbedRequest(each.id, tuple(tuple(min(token, 254) for token in input) for input in each.inputs))
        for each in good
    ]
    at.submit(*good, EmbedRequest(9, ((1, 2), (3, 255))))
    at.run()
    assert at.failed(9).error.kind == "decode-failed"
    assert_vectors(at, *good)


def test_a_broken_computation_fails_those_in_the_batch() -> None:
    at = bench()
    at.backend.forced.append(Outcome.BROKEN)
    at.submit(EmbedRequest(1, inputs_of(1, [5])))
    at.run()
    assert at.failed(1).error.kind == "decode-failed"
    ask = EmbedRequest(2, inputs_of(2, [5]))
    at.submit(ask)
    at.run()
    assert_vectors(at, ask)
    assert at.engine.stats().requests_failed == 1


def test_a_vector_that_is_no_number_fails_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    at = bench()
    whole = FakeBackend.hidden

    def overflowing(backend: FakeBackend) -> np.ndarray:
        rows = whole(backend)
        rows[rows[:, 1] == 255] = np.nan
        return rows

    monkeypatch.setattr(FakeBackend, "hidden", overflowing)
    good = EmbedRequest(1, ((1, 2), (3, 4)))
    at.submit(good, EmbedRequest(2, ((1, 2), (3, 255), (5, 6))))
    at.run()
    assert_vectors(at, good)
    assert "not finite" in at.failed(2).error.message
    assert at.backend.n_cells == 0


def test_what_is_left_at_the_end_is_told() -> None:
    at = bench()
    at.submit(EmbedRequest(1, inputs_of(1, [200] * 9)))
    at.turn(2)
    at.engine.stop()
    at.engine.run()
    assert at.failed(1).error.kind == "stopping"


@settings(deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=6), min_size=1, max_size=5),
    outcomes=st.lists(st.sampled_from([Outcome.DONE, Outcome.FULL, Outcome.ABORTED]), max_size=8),
    whole=st.booleans(),
    n_ctx=st.integers(60, 200),
)
def test_whatever_happens_the_vectors_are_right(
    sizes: list[list[int]], outcomes: list[Outcome], whole: bool, n_ctx: int
) -> None:
    at = bench("mean", whole=whole, n_step=50, n_ctx=n_ctx)
    requests = [EmbedRequest(id, inputs_of(id, each)) for id, each in enumerate(sizes, 1)]
    talk = request(99, "hello", 12)
    at.submit(talk, *requests)
    at.backend.forced.extend(outcomes)
    at.run()
    failed = {output.id for output in at.outputs if not isinstance(output, Embedded)} - {99}
    # Where a single token is said not to fit, there is nobody left to make room.
    assert not failed or Outcome.FULL in outcomes
    assert_vectors(at, *(each for each in requests if each.id not in failed), pooling="mean")
    assert all(at.backend.memory[sequence] == [] for sequence in BESIDE)
