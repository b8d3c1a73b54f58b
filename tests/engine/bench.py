"""An engine on the toy model, turned by hand, and what its tests say of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from llamad.engine.engine import Engine
from llamad.engine.vocabulary import (
    Failed,
    Finished,
    GenerateRequest,
    Output,
    SamplingParams,
    Text,
)
from tests.engine.fake import FakeBackend, answer

GREEDY = SamplingParams(temperature=0.0)
TURNS_MAX = 5000


def request(id: int, prompt: str, max_tokens: int = 8, **fields: Any) -> GenerateRequest:
    return GenerateRequest(id, tuple(prompt.encode()), max_tokens, **{"sampling": GREEDY, **fields})


class Bench:
    """An engine that is turned by hand."""

    def __init__(self, backend: FakeBackend | None = None, **options: Any) -> None:
        self.backend = backend or FakeBackend()
        self.steps: list[list[Output]] = []
        # Steps too short to learn from: what is planned must not depend on what else the machine does.
        options.setdefault("clock", (tick / 1e6 for tick in itertools.count()).__next__)
        self.engine = Engine(self.backend, self.steps.append, **options)

    @property
    def outputs(self) -> list[Output]:
        return [output for step in self.steps for output in step]

    def submit(self, *requests: GenerateRequest) -> None:
        for item in requests:
            self.engine.submit(item)

    def run(self) -> None:
        """Turn until nothing is left to do."""
        for _ in range(TURNS_MAX):
            stats = self.engine.stats()
            if not stats.slots_busy and not stats.queued:
                return
            assert self.engine.turn()
        raise AssertionError(f"still busy after {TURNS_MAX} turns: {self.engine.slots()}")

    def turn(self, count: int) -> None:
        for _ in range(count):
            stats = self.engine.stats()
            if stats.slots_busy or stats.queued:
                self.engine.turn()

    def text(self, id: int) -> str:
        return "".join(output.text for output in self.outputs if isinstance(output, Text) and output.id == id)

    def last(self, id: int) -> Finished | Failed:
        last = [item for item in self.outputs if item.id == id and isinstance(item, Finished | Failed)]
        assert len(last) == 1, f"request {id} got {len(last)} last words"
        return last[0]

    def finished(self, id: int) -> Finished:
        last = self.last(id)
        assert isinstance(last, Finished), last
        return last

    def failed(self, id: int) -> Failed:
        last = self.last(id)
        assert isinstance(last, Failed), last
        return last

    def answered(self) -> set[int]:
        return {output.id for output in self.outputs if isinstance(output, Finished | Failed)}


def assert_answers(bench: Bench, requests: Iterable[GenerateRequest]) -> None:
    for item in requests:
        assert bench.text(item.id) == answer(item.tokens, item.max_tokens)
        assert bench.finished(item.id).reason == "length"
