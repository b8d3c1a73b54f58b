"""The model that comes and goes: nobody finds it once it is removed, and counters go on over its naps."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from llamad.child.resident import Resident
from llamad.engine.keeping import Keeping
from llamad.engine.vocabulary import Finished, GenerateRequest, Output
from llamad.errors import LlamadError, RequestError, UnavailableError
from tests.conftest import wait_until
from tests.engine.fake import FakeBackend

PROMPT = (1, 2, 3)


class Backend(FakeBackend):
    """Knows whether it has been freed."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Box:
    """A resident and what it delivers."""

    def __init__(self, backend: Backend) -> None:
        self.outputs: list[Output] = []
        self.deaths: list[str] = []
        self.resident = Resident(backend, self.outputs.extend, lambda: self.deaths.append("dead"), Keeping())

    def answer(self, id: int, count: int) -> None:
        self.resident.submit(GenerateRequest(id, PROMPT, max_tokens=count))
        wait_until(lambda: any(isinstance(o, Finished) and o.id == id for o in self.outputs))
        wait_until(lambda: self.resident.idle)


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def box(backend: Backend):
    box = Box(backend)
    yield box
    box.resident.close()


def test_without_a_model_everything_that_needs_one_is_refused(box: Box, backend: Backend) -> None:
    resident = box.resident
    free = resident.remove()
    assert resident.asleep
    assert resident.idle
    assert resident.slots() == []
    assert not backend.closed
    calls = [
        lambda: resident.submit(GenerateRequest(1, PROMPT)),
        lambda: resident.tokenize("x", True, True),
        lambda: resident.detokenize([1]),
        lambda: resident.piece(1),
        resident.remove,
    ]
    for call in calls:
        with pytest.raises(UnavailableError) as caught:
            call()
        assert (caught.value.kind, caught.value.status) == ("sleeping", 503)
    resident.cancel(1)
    free()
    assert backend.closed
    assert box.deaths == []


def test_counters_go_on_where_they_were(box: Box) -> None:
    box.answer(1, 5)
    before = box.resident.stats()
    assert (before.requests_done, before.predicted_tokens) == (1, 5)
    box.resident.remove()()
    assert box.resident.stats() == before
    box.resident.install(Backend())
    assert not box.resident.asleep
    box.answer(2, 3)
    after = box.resident.stats()
    assert (after.requests_done, after.predicted_tokens) == (2, 8)
    assert after.steps > before.steps
    assert (after.generating_max, after.slots_busy, after.queued) == (1, 0, 0)


def test_an_engine_that_does_not_stop_is_not_freed(
    box: Box, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamad.child.resident.SLEEP_WITHIN_S", 0.05)
    entered, released = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        released.wait(10)

    backend.on_decode = hang
    box.resident.submit(GenerateRequest(1, PROMPT, max_tokens=1))
    assert entered.wait(10)
    with pytest.raises(LlamadError, match="did not stop within") as caught:
        box.resident.remove()()
    released.set()
    assert caught.value.kind == "engine-died"
    assert not backend.closed


def test_a_death_is_told_and_kept(backend: Backend) -> None:
    def die() -> None:
        raise MemoryError("no more of it")

    backend.on_decode = die
    box = Box(backend)
    box.resident.submit(GenerateRequest(1, PROMPT, max_tokens=1))
    wait_until(lambda: box.deaths)
    assert isinstance(box.resident.failure, MemoryError)


def test_facts_are_those_of_the_model_that_is_there(box: Box, backend: Backend) -> None:
    box.resident.remove()()
    assert box.resident.facts == backend.facts
    other = Backend(n_slots=2)
    box.resident.install(other)
    assert box.resident.facts == dataclasses.replace(backend.facts, n_slots=2)


def test_adapters_that_were_put_in_force_are_so_after_a_nap(box: Box, backend: Backend) -> None:
    resident = box.resident
    assert resident.default_adapters == ((0, 1.0), (1, 1.0), (2, 1.0))
    resident.adapt(((1, 0.5),))
    resident.remove()()
    assert resident.default_adapters == ((1, 0.5),)
    resident.adapt(((2, 1.0),))
    awake = Backend()
    resident.install(awake)
    box.answer(1, 3)
    assert awake.adapters == ((2, 1.0),)
    with pytest.raises(RequestError, match="adapter 3"):
        resident.adapt(((3, 1.0),))
    assert resident.default_adapters == ((2, 1.0),)


def test_a_request_that_names_adapters_gets_these(box: Box, backend: Backend) -> None:
    box.resident.submit(GenerateRequest(1, PROMPT, max_tokens=2, adapters=()))
    wait_until(lambda: any(isinstance(output, Finished) for output in box.outputs))
    assert backend.adapters == ()
