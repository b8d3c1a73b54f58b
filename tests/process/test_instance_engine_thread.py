"""The engine's thread: a death is told, an end is not."""

from __future__ import annotations

import pytest

from llamad.child.engine_thread import EngineThread


class Ending:
    def run(self) -> None:
        return


class Dying:
    def run(self) -> None:
        raise MemoryError("no more of it")


@pytest.mark.parametrize(("engine", "told"), [(Ending(), []), (Dying(), ["dead"])])
def test_only_a_death_is_told(engine: Ending | Dying, told: list[str]) -> None:
    calls: list[str] = []
    thread = EngineThread(engine, lambda: calls.append("dead"))
    thread.start()
    thread.join(5)
    assert calls == told
    assert (thread.failure is not None) == bool(told)
