"""Answers under rules, and likelihoods, through the whole engine on the toy model."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from llamad.engine.vocabulary import Failed, Finished, Likelihood, Rules, SamplingParams, Text, Wanted
from tests.conftest import wait_until
from tests.engine.bench import Bench, request
from tests.engine.fake import EOG, FakeBackend, answer

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def schema(document: Any) -> Rules:
    return Rules("json_schema", json.dumps(document))


def seeded(seed: int) -> SamplingParams:
    return SamplingParams(seed=seed, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def likelihoods(bench: Bench, id: int) -> list[Likelihood]:
    return [
        each for out in bench.outputs if isinstance(out, Text) and out.id == id for each in out.likelihoods
    ]


def test_an_answer_conforms_to_its_schema_and_ends_by_itself() -> None:
    bench = Bench()
    bench.submit(*[request(id, "x", 200, rules=schema(PERSON), sampling=seeded(id)) for id in range(6)])
    bench.run()
    for id in range(6):
        document = json.loads(bench.text(id))
        assert set(document) == {"name", "age"}
        assert bench.finished(id).reason == "stop"


def test_a_neighbour_without_rules_is_left_alone() -> None:
    bench = Bench()
    bench.submit(request(1, "x", 50, rules=schema({"enum": ["abc"]})), request(2, "hello", 20))
    bench.run()
    assert bench.text(1) == '"abc"'
    assert bench.text(2) == answer(b"hello", 20)


def test_a_grammar_and_a_stop_string() -> None:
    bench = Bench()
    rules = Rules("gbnf", 'root ::= ("ab" | "cd"){3} "!"')
    bench.submit(request(1, "x", 50, rules=rules), request(2, "x", 50, rules=rules, stop=("b",)))
    bench.run()
    assert len(bench.text(1)) == 7
    assert bench.text(1).endswith("!")
    assert bench.text(2) in ("a", "cd" * 3 + "!", "cda", "cdcda")


def test_an_answer_cut_by_its_length_says_so() -> None:
    bench = Bench()
    bench.submit(request(1, "x", 3, rules=schema(PERSON)))
    bench.run()
    assert bench.finished(1).reason == "length"
    assert bench.text(1).startswith("{")


def test_rules_that_cannot_be_honoured_fail_before_anything_is_evaluated() -> None:
    bench = Bench()
    bench.submit(request(1, "x", 3, rules=schema({"type": "objekt"})))
    wait_until(lambda: bench.answered() == {1})
    failed = bench.failed(1)
    assert (failed.error.status, failed.error.kind) == (400, "unsupported-schema")
    assert bench.backend.batches == []
    assert bench.engine.stats().requests_failed == 1
    assert bench.engine.stats().queued == 0


def test_rules_have_a_size() -> None:
    bench = Bench()
    bench.submit(request(1, "x", 3, rules=Rules("gbnf", "#" * 300_000)))
    wait_until(lambda: bench.answered() == {1})
    assert "300000" in bench.failed(1).error.message


def test_an_end_that_is_forbidden_and_demanded_fails_that_request() -> None:
    bench = Bench()
    params = SamplingParams(temperature=0.0, ignore_eos=True)
    bench.submit(
        request(1, "x", 9, rules=Rules("gbnf", 'root ::= ""'), sampling=params), request(2, "hello", 5)
    )
    bench.run()
    assert bench.failed(1).error.kind == "no-token"
    assert bench.text(2) == answer(b"hello", 5)


def test_a_fault_while_preparing_ends_one_request_and_not_the_workshop() -> None:
    class Faulty(FakeBackend):
        def chain(self, stages: Sequence[Any]) -> Any:
            if stages[0].name == "dry":
                raise MemoryError
            return super().chain(stages)

    bench = Bench(Faulty())
    bench.submit(request(1, "x", 3, sampling=SamplingParams(dry_multiplier=1.0)))
    wait_until(lambda: bench.answered() == {1})
    assert "MemoryError" in bench.failed(1).error.message
    bench.submit(request(2, "x", 50, rules=schema({"enum": ["abc"]})))
    bench.run()
    assert bench.text(2) == '"abc"'


class Slow(FakeBackend):
    """Holds up whoever prepares the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def pieces(self) -> list[bytes]:
        self.begun.set()
        assert self.go.wait(20)
        return super().pieces()


def test_while_rules_are_prepared_others_are_served() -> None:
    backend = Slow()
    bench = Bench(backend)
    bench.submit(request(1, "x", 50, rules=schema({"enum": ["abc"]})))
    assert backend.begun.wait(10)
    bench.submit(request(2, "hello", 20))
    while 2 not in bench.answered():
        bench.engine.turn()
    assert bench.text(2) == answer(b"hello", 20)
    backend.go.set()
    bench.run()
    assert bench.text(1) == '"abc"'


def test_a_request_that_is_cancelled_while_it_is_prepared_is_never_started() -> None:
    backend = Slow()
    bench = Bench(backend)
    bench.submit(request(1, "x", 50, rules=schema({"enum": ["abc"]})))
    bench.submit(request(2, "x", 50, rules=schema({"enum": ["abc"]})))
    assert backend.begun.wait(10)
    bench.engine.cancel(1)
    bench.engine.cancel(2)
    backend.go.set()
    bench.submit(request(3, "x", 50, rules=schema({"enum": ["abc"]})))
    bench.run()
    assert bench.answered() == {3}
    assert len(bench.backend.batches) < 60


def test_stopping_answers_those_who_are_being_prepared() -> None:
    backend = Slow()
    bench = Bench(backend)
    engine = bench.engine
    for id in (1, 2):
        bench.submit(request(id, "x", 50, rules=schema({"enum": ["abc"]})))
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    assert backend.begun.wait(10)
    engine.stop()
    backend.go.set()
    thread.join(10)
    assert not thread.is_alive()
    assert {bench.failed(id).error.kind for id in (1, 2)} == {"stopping"}
    bench.submit(request(3, "x", 5, rules=schema({})))
    assert bench.failed(3).error.kind == "stopping"


def test_matchers_go_with_their_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    import gc
    import weakref

    from llamad.engine import guidance

    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    made = guidance.Guide.compile

    def remember(self: Any, rules: Rules) -> Any:
        matcher = made(self, rules)
        alive.add(matcher)
        return matcher

    monkeypatch.setattr(guidance.Guide, "compile", remember)
    bench = Bench()
    bench.submit(*[request(id, "x", 200, rules=schema(PERSON), sampling=seeded(id)) for id in range(3)])
    wait_until(lambda: len(alive) == 3)
    bench.turn(4)
    bench.engine.cancel(0)
    bench.run()
    assert bench.answered() == {1, 2}
    bench.submit(request(9, "y", 1))
    bench.run()
    gc.collect()
    assert len(alive) == 0


def test_likelihoods_come_with_their_text_one_a_token() -> None:
    bench = Bench()
    bench.submit(request(1, "hello", 6, wanted=Wanted(2)), request(2, "hello", 6))
    bench.run()
    told = likelihoods(bench, 1)
    assert b"".join(each.piece for each in told).decode() == bench.text(1) == answer(b"hello", 6)
    for each in told:
        assert each.value == each.top[0].value < 0
        assert [each.id, each.piece] == [each.top[0].id, each.top[0].piece]
        assert len(each.top) == 2
        assert not each.after_sampling
    assert likelihoods(bench, 2) == []


def test_a_character_of_several_tokens_has_a_likelihood_for_each() -> None:
    backend = FakeBackend()
    said = [*"aż🦊.".encode(), EOG]
    backend.successor = lambda tokens: said[len(tokens) - 1]
    bench = Bench(backend)
    bench.submit(request(1, "x", 50, wanted=Wanted(0)))
    bench.run()
    texts = [out for out in bench.outputs if isinstance(out, Text)]
    assert [(out.text, [each.id for each in out.likelihoods]) for out in texts] == [
        ("a", said[:1]),
        ("ż", said[1:3]),
        ("🦊", said[3:7]),
        (".", said[7:8]),
        ("", said[8:]),
    ]
    assert sum(out.tokens for out in texts) == len(said)


def test_tokens_of_a_stop_string_are_not_told() -> None:
    backend = FakeBackend()
    said = list(b"abcSTOPxyz")
    backend.successor = lambda tokens: said[len(tokens) - 1]
    for stop, expected in (("STOP", b"abc"), ("Sxy", b"abcSTOPxy")):
        bench = Bench(backend)
        bench.submit(request(1, "x", 9, wanted=Wanted(0), stop=(stop,)))
        bench.run()
        assert b"".join(each.piece for each in likelihoods(bench, 1)) == expected
        assert bench.text(1) == expected.decode()


def test_half_a_character_at_the_end_is_told_though_it_is_no_text() -> None:
    backend = FakeBackend()
    said = list("aż".encode())
    backend.successor = lambda tokens: said[len(tokens) - 1]
    bench = Bench(backend)
    bench.submit(request(1, "x", 2, wanted=Wanted(0)))
    bench.run()
    assert bench.text(1) == "a"
    assert [each.piece for each in likelihoods(bench, 1)] == [b"a", b"\xc5"]
    assert isinstance(bench.last(1), Finished)


def test_likelihoods_under_rules_are_the_models_own() -> None:
    bench = Bench()
    bench.submit(request(1, "x", 20, wanted=Wanted(1), rules=schema({"enum": ["abc"]})))
    bench.run()
    told = likelihoods(bench, 1)
    assert b"".join(each.piece for each in told) == b'"abc"'
    assert told[0].top[0].id != told[0].id
    assert not any(isinstance(out, Failed) for out in bench.outputs)
