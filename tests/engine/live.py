"""A real model behind an engine on its own thread, for tests/model."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from llamad.engine.engine import Engine
from llamad.engine.keeping import NOTHING, Keeping
from llamad.engine.vocabulary import (
    EngineSettings,
    Failed,
    Finished,
    GenerateRequest,
    Output,
    SamplingParams,
    Text,
)
from tests.conftest import wait_until

GREEDY = SamplingParams(temperature=0.0)


class Live:
    """`backend` with an engine; requests are numbered here."""

    def __init__(self, backend: Any, keeping: Keeping = NOTHING) -> None:
        self.backend = backend
        self.texts: dict[int, str] = {}
        self.ends: dict[int, Finished | Failed] = {}
        self.on_text: Callable[[Text], None] = lambda _: None
        self.engine = Engine(backend, self._deliver, keeping=keeping)
        self.last_id = 0
        self._thread = threading.Thread(target=self.engine.run, daemon=True)
        self._thread.start()

    def _deliver(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Text):
                self.texts[output.id] = self.texts.get(output.id, "") + output.text
                self.on_text(output)
            else:
                self.ends[output.id] = output

    def submit(self, prompt: str | Sequence[int], max_tokens: int = 16, **fields: Any) -> int:
        self.last_id += 1
        tokens = self.engine.tokenize(prompt) if isinstance(prompt, str) else prompt
        fields.setdefault("sampling", GREEDY)
        self.engine.submit(GenerateRequest(self.last_id, tuple(tokens), max_tokens, **fields))
        return self.last_id

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def wait(self, *ids: int) -> None:
        wait_until(lambda: all(id in self.ends for id in ids), within_s=90)

    def ask(self, prompt: str | Sequence[int], max_tokens: int = 16, **fields: Any) -> tuple[str, Finished]:
        id = self.submit(prompt, max_tokens, **fields)
        self.wait(id)
        return self.texts.get(id, ""), self.finished(id)

    def finished(self, id: int) -> Finished:
        end = self.ends[id]
        assert isinstance(end, Finished), end
        return end

    def settle(self, within_s: float = 10.0) -> None:
        """Wait until no slot is busy."""
        wait_until(lambda: not self.engine.stats().slots_busy, within_s=within_s)

    def close(self) -> None:
        self.engine.stop()
        self._thread.join(20)
        assert not self._thread.is_alive()


@contextmanager
def loaded(path: Path, **settings: Any) -> Iterator[Any]:
    """A backend for this model; closed at the end."""
    # Before libgomp is loaded: the tests share their cores with whatever else runs.
    os.environ.setdefault("GOMP_SPINCOUNT", "40000")
    os.environ.setdefault("OMP_WAIT_POLICY", "active")
    from llamad.engine import loading

    backend = loading.load(EngineSettings(str(path), **settings))
    try:
        yield backend
    finally:
        backend.close()


@contextmanager
def live(path: Path, keeping: Keeping = NOTHING, **settings: Any) -> Iterator[Live]:
    with loaded(path, **settings) as backend:
        engine = Live(backend, keeping)
        try:
            yield engine
        finally:
            engine.close()


def full_chain_and_prefiltered(
    backend: Any, row: np.ndarray, params: SamplingParams, draws: int, seed: int
) -> tuple[list[int], list[int]]:
    """The same draws twice: over the whole vocabulary, and over the candidates only."""
    from llamad.engine.narrow import sieve
    from llamad.engine.stages import recipe

    stages = recipe(params, seed, 4096).chain
    ids = sieve(stages[0])(row)
    assert ids is not None
    assert ids.size < row.size / 20
    whole, few = backend.chain(stages), backend.chain(stages)
    return [whole.draw(row, None) for _ in range(draws)], [few.draw(row, ids) for _ in range(draws)]
