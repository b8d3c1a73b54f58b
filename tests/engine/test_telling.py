"""What an engine tells of a request beside its text: tokens, timings, progress; and the time limit."""

from __future__ import annotations

import itertools

from llamad.engine.vocabulary import Progress, Text
from tests.engine.bench import Bench, request
from tests.engine.fake import EOG, FakeBackend, answer


def texts(bench: Bench, id: int) -> list[Text]:
    return [output for output in bench.outputs if isinstance(output, Text) and output.id == id]


def progress(bench: Bench, id: int) -> list[Progress]:
    return [output for output in bench.outputs if isinstance(output, Progress) and output.id == id]


def test_every_token_is_told_once_and_the_slot_with_it() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", 5, id_slot=2))
    bench.run()
    told = [id for text in texts(bench, 1) for id in text.ids]
    assert bytes(told).decode() == answer(b"hello", 5)
    assert {text.slot for text in texts(bench, 1)} == {bench.finished(1).slot} == {2}
    assert bench.finished(1).ids == ()


def test_a_token_without_text_comes_with_the_last_word() -> None:
    backend = FakeBackend()
    backend.successor = lambda tokens: EOG if len(tokens) == 8 else ord("a")
    bench = Bench(backend)
    bench.submit(request(1, "hello", 9))
    bench.run()
    assert [text.ids for text in texts(bench, 1)] == [(97,), (97,), (97,)]
    assert bench.finished(1).ids == (EOG,)


def test_timings_come_with_each_text_where_they_are_wanted() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", 4, tell_timings=True), request(2, "others", 4))
    bench.run()
    assert [text.timings and text.timings.predicted_tokens for text in texts(bench, 1)] == [1, 2, 3, 4]
    assert all(text.timings is None for text in texts(bench, 2))


def test_progress_is_told_from_what_was_there_to_the_whole_prompt() -> None:
    bench = Bench(FakeBackend(n_slots=1, n_ctx=512, n_step=64))
    bench.submit(request(1, "x" * 100, 2))
    bench.run()
    bench.submit(request(2, "x" * 100 + "y" * 150, 2, tell_progress=True))
    bench.run()
    told = progress(bench, 2)
    n_cached = bench.finished(2).timings.cached_tokens
    assert n_cached > 0
    assert {(one.total, one.cached) for one in told} == {(250, n_cached)}
    processed = [one.processed for one in told]
    assert processed == sorted(set(processed))
    assert (processed[0], processed[-1]) == (n_cached, 250)
    assert len(processed) >= 4
    assert not progress(bench, 1)


def test_a_time_limit_ends_the_answer_with_a_line() -> None:
    seconds = itertools.count()
    backend = FakeBackend()
    backend.successor = lambda tokens: ord("\n") if len(tokens) % 10 == 0 else ord("a")
    bench = Bench(backend, clock=lambda: float(next(seconds)))
    bench.submit(request(1, "hello", 200, time_limit_ms=60_000), request(2, "hello", 60))
    bench.run()
    assert bench.finished(1).reason == "length"
    assert bench.text(1).endswith("\n")
    assert 1 < bench.text(1).count("\n") < 15
    assert len(bench.text(2)) == 60


def test_an_answer_that_is_not_streamed_is_told_at_its_end_and_wakes_nobody_before() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", 9, stream=False, stop=("zz",)), request(2, "others", 3))
    bench.run()
    (whole,) = texts(bench, 1)
    assert whole.text == answer(b"hello", 9)
    assert bytes(whole.ids).decode() == whole.text
    assert len([step for step in bench.steps if any(output.id == 1 for output in step)]) == 1
    assert len(texts(bench, 2)) == 3


def test_a_stop_string_ends_an_answer_that_is_not_streamed() -> None:
    bench = Bench()
    stop = answer(b"hello", 5)[3:]
    bench.submit(request(1, "hello", 9, stream=False, stop=(stop,)))
    bench.run()
    assert bench.text(1) == answer(b"hello", 3)
    assert (bench.finished(1).reason, bench.finished(1).stop_word) == ("stop", stop)
