"""The engine on a toy model, one turn at a time: every answer is known."""

from __future__ import annotations

from llamad.engine.vocabulary import (
    SEED_RANDOM,
    Finished,
    SamplingParams,
    Text,
)
from tests.engine.bench import Bench, assert_answers, request
from tests.engine.fake import EOG, FakeBackend, answer, next_token


def test_one_request_is_answered_with_its_text_and_its_costs() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", 5))
    bench.run()
    assert bench.text(1) == answer(b"hello", 5)
    last = bench.finished(1)
    assert (last.reason, last.stop_word) == ("length", "")
    timings = last.timings
    assert (timings.prompt_tokens, timings.cached_tokens, timings.predicted_tokens) == (5, 0, 5)
    assert sum(output.tokens for output in bench.outputs if isinstance(output, Text)) == 5


def test_more_requests_than_slots_are_all_answered_and_share_batches() -> None:
    bench = Bench(FakeBackend(n_slots=4))
    requests = [request(id, f"prompt number {id}", 10) for id in range(11)]
    bench.submit(*requests)
    bench.run()
    assert_answers(bench, requests)
    stats = bench.engine.stats()
    assert (stats.generating_max, stats.requests_done, stats.predicted_tokens) == (4, 11, 110)
    assert stats.steps == len(bench.backend.batches)
    assert stats.decoded_tokens == sum(len(e.tokens) for batch in bench.backend.batches for e in batch)


def test_a_step_is_delivered_with_one_call() -> None:
    bench = Bench(FakeBackend(n_slots=4))
    bench.submit(*[request(id, f"same size {id}", 4) for id in range(4)])
    bench.run()
    assert max(len({output.id for output in step}) for step in bench.steps) == 4
    assert len(bench.steps) <= bench.engine.stats().steps


def test_a_long_prompt_does_not_stop_a_stream() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_ctx=2048, n_step=64))
    bench.submit(request(1, "short", 40))
    bench.turn(3)
    bench.submit(request(2, "x" * 1000, 3))
    before = bench.engine.slots()[0].predicted_tokens
    bench.turn(8)
    assert bench.engine.slots()[0].predicted_tokens == before + 8
    assert bench.engine.slots()[1].state == "processing_prompt"
    bench.run()
    assert bench.text(2) == answer(b"x" * 1000, 3)


def test_the_end_of_generation_is_no_text_but_a_token() -> None:
    backend = FakeBackend()
    backend.successor = lambda tokens: EOG if len(tokens) == 9 else next_token(tokens)
    bench = Bench(backend)
    bench.submit(request(1, "hello", 50))
    bench.run()
    assert bench.text(1) == answer(b"hello", 4)
    assert (bench.finished(1).reason, bench.finished(1).timings.predicted_tokens) == ("stop", 5)


def test_ignore_eos_goes_on() -> None:
    backend = FakeBackend()
    backend.successor = lambda tokens: EOG
    bench = Bench(backend)
    bench.submit(request(1, "hello", 6, sampling=SamplingParams(temperature=0.0, ignore_eos=True)))
    bench.run()
    assert (bench.finished(1).reason, bench.finished(1).timings.predicted_tokens) == ("length", 6)


def test_stop_strings_end_the_answer_and_are_not_part_of_it() -> None:
    full = answer(b"hello", 30)
    stop = full[7:10]
    bench = Bench()
    bench.submit(request(1, "hello", 30, stop=("ZZZ", stop)))
    bench.run()
    assert bench.text(1) == full[: full.find(stop)]
    assert (bench.finished(1).reason, bench.finished(1).stop_word) == ("stop", stop)


def test_a_control_token_appears_only_where_it_is_to_be_shown() -> None:
    """Bytes stand in for control tokens: what is shown is what a request says, in its place."""
    bench = Bench()
    plain, shown = (
        request(1, "hello", 5),
        request(2, "hello", 5, shown=((answer(b"hello", 1).encode()[0], b"<mark>"),)),
    )
    bench.submit(plain, shown)
    bench.run()
    text = bench.text(1)
    assert bench.text(2) == text.replace(text[0], "<mark>")


def test_text_held_for_a_stop_string_comes_out_at_the_end() -> None:
    full = answer(b"hello", 6)
    bench = Bench()
    bench.submit(request(1, "hello", 6, stop=(full[3:] + "!",)))
    bench.run()
    assert bench.text(1) == full


def test_max_tokens_zero_only_fills_the_cache() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", 0))
    bench.run()
    assert (bench.text(1), bench.finished(1).timings.predicted_tokens) == ("", 0)
    bench.submit(request(2, "hello you", 2))
    bench.run()
    assert bench.finished(2).timings.cached_tokens == 5


def test_the_context_full_in_mid_answer_is_length() -> None:
    bench = Bench(FakeBackend(n_slots=1, n_ctx=32))
    bench.submit(request(1, "hello", -1))
    bench.run()
    assert bench.finished(1).reason == "length"
    assert bench.text(1) == answer(b"hello", 27)


def test_what_cannot_be_served_fails_at_once_and_hurts_nobody() -> None:
    bench = Bench(FakeBackend(n_slots=1, n_ctx=32))
    bench.submit(request(1, "hello", 3), request(2, "x" * 32), request(3, ""))
    assert bench.failed(2).error.details == {"n_prompt_tokens": 32, "n_ctx": 32}
    assert (bench.failed(2).error.status, bench.failed(3).error.status) == (400, 400)
    bench.run()
    assert bench.text(1) == answer(b"hello", 3)
    assert bench.engine.stats().requests_failed == 2


def test_the_queue_is_bounded() -> None:
    bench = Bench(FakeBackend(n_slots=1), queue_max=2)
    requests = [request(id, "hello", 3) for id in range(5)]
    bench.submit(*requests)
    assert [bench.failed(id).error.kind for id in (3, 4)] == ["queue-full", "queue-full"]
    assert bench.failed(3).error.retry_after_s
    bench.run()
    assert_answers(bench, requests[:3])


def test_turns_of_a_conversation_reuse_their_own_prefix() -> None:
    bench = Bench(FakeBackend(n_slots=2))
    history = {1: "first conversation", 2: "second one, other"}
    for turn in range(3):
        for who in (1, 2):
            id = 10 * turn + who
            bench.submit(request(id, history[who], 4))
            bench.run()
            cached = bench.finished(id).timings.cached_tokens
            assert cached == 0 if turn == 0 else cached >= len(history[who]) - 8
            assert bench.text(id) == answer(history[who].encode(), 4)
            history[who] += bench.text(id) + " more"


def test_cache_prompt_off_evaluates_everything() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", 2))
    bench.run()
    bench.submit(request(2, "hello", 2, cache_prompt=False))
    bench.run()
    assert bench.finished(2).timings.cached_tokens == 0
    assert bench.text(2) == bench.text(1)


def test_a_sliding_window_that_has_moved_on_is_not_reused() -> None:
    backend = FakeBackend(n_slots=1)
    backend.n_swa = 8
    bench = Bench(backend)
    bench.submit(request(1, "a rather long beginning", 12))
    bench.run()
    bench.submit(request(2, "a rather long beginning", 3))
    bench.run()
    assert bench.finished(2).timings.cached_tokens == 0
    assert bench.text(2) == answer(b"a rather long beginning", 3)


def test_a_slot_can_be_asked_for_and_others_pass() -> None:
    bench = Bench(FakeBackend(n_slots=2))
    bench.submit(request(1, "hello", 20, id_slot=1))
    bench.turn(2)
    bench.submit(request(2, "second", 3, id_slot=1), request(3, "third", 3))
    bench.run()
    assert [bench.finished(id).slot for id in (1, 2, 3)] == [1, 1, 0]
    order = [output.id for output in bench.outputs if isinstance(output, Finished)]
    assert order == [3, 1, 2]


def test_a_seed_that_is_drawn_is_told_and_repeats_the_answer() -> None:
    bench = Bench(draw_seed=lambda: 4711)
    free = SamplingParams(seed=SEED_RANDOM, top_k=0)
    bench.submit(request(1, "hello", 12, sampling=free))
    bench.run()
    assert bench.finished(1).seed == 4711
    bench.submit(request(2, "hello", 12, sampling=SamplingParams(seed=4711, top_k=0)))
    bench.submit(request(3, "hello", 12, sampling=SamplingParams(seed=4712, top_k=0)))
    bench.run()
    assert bench.text(2) == bench.text(1) != bench.text(3)


def test_slots_show_what_they_do() -> None:
    bench = Bench(FakeBackend(n_slots=2, n_ctx=128, n_step=16, shared=False))
    bench.submit(request(9, "x" * 40, 8))
    bench.turn(1)
    busy, idle = bench.engine.slots()
    assert (busy.state, busy.request, busy.prompt_tokens, busy.n_ctx) == ("processing_prompt", 9, 40, 64)
    assert (idle.state, idle.request) == ("idle", None)
    bench.run()
    assert {slot.state for slot in bench.engine.slots()} == {"idle"}
