"""A full queue: whoever fills it is refused, and nobody else."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.core import actions as a
from llamad.core.events import LeaseKey
from tests.core.driver import Driver


def filled(*models: str, most: int) -> tuple[Driver, list[LeaseKey]]:
    """`a` is loaded and full, and all places in line are x's."""
    d = Driver(*models, max_queued=most, models_max=1)
    d.loaded("a", slots=1)
    for _ in range(2):
        d.ask("a", client="x")
    return d, [d.ask(models[number % len(models)], client="x") for number in range(most)]


def test_who_has_none_in_line_gets_the_place_of_who_has_all() -> None:
    d, waiting = filled("a", most=5)
    mine = d.ask("a", client="y")
    assert (d.refusal().key, d.refusal().kind, d.refusal().status) == (waiting[-1], "queue-full", 429)
    assert "5 of this client" in d.refusal().message
    assert [queued.key for queued in d.seen(a.QueueLease)] == [mine]
    again = d.ask("a", client="x")
    assert d.refusal().key == again, "and does not get it back"


def test_the_places_of_all_models_are_shared_too() -> None:
    d, waiting = filled("a", "b", most=6)
    mine = d.ask("b", client="y")
    assert (d.refusal().key.lease, d.refusal().kind) in [(key.lease, "queue-full") for key in waiting[-2:]]
    assert mine in d.scheduler.state.models["b"].waiters


def test_a_model_that_nobody_else_wanted_leaves_the_queue_with_its_last_waiter() -> None:
    d = Driver("a", "b", "c", "d", max_queued=3, models_max=1)
    d.loaded("a", slots=1)
    for _ in range(2):
        d.ask("a", client="z")
    asked = {d.ask(model, client="x"): model for model in ("b", "c", "d")}
    mine = d.ask("a", client="y")
    gone = asked[d.refusal().key]
    assert gone not in d.scheduler.state.queue
    assert not d.scheduler.state.models[gone].waiters
    assert mine in d.scheduler.state.models["a"].waiters


def test_one_more_than_another_is_no_reason_to_turn_anybody_away() -> None:
    d = Driver("a", max_queued=3)
    d.loaded("a", slots=1)
    for client in ("x", "x", "x", "x", "y"):
        d.ask("a", client=client)
    late = d.ask("a", client="y")
    assert d.refusal().key == late


@given(st.lists(st.tuples(st.sampled_from("uvwxyz"), st.sampled_from("ab")), max_size=60), st.integers(0, 8))
def test_nobody_is_refused_who_has_less_than_another(asks: list[tuple[str, str]], most: int) -> None:
    d, _ = filled("a", "b", most=most)
    in_line = Counter(x=most)
    client_of: dict[LeaseKey, str] = {}
    for client, model in asks:
        key = d.ask(model, client=client)
        client_of[key] = client
        in_line[client] += 1
        for refusal in d.seen(a.RefuseLease):
            gone = client_of.get(refusal.key, "x")
            in_line[gone] -= 1
            of_model = d.scheduler.state.models[model].waiters.counts()
            assert max(of_model.values(), default=0) <= max(in_line.values())
            assert in_line[gone] + 1 >= max(of_model.get(other, 0) for other in "uvwxyz")
        assert d.scheduler.state.waiting <= most


@pytest.mark.parametrize("most", [0, 1])
def test_with_hardly_a_queue_nobody_gives_way(most: int) -> None:
    d, _ = filled("a", most=most)
    late = d.ask("a", client="y")
    assert d.refusal().key == late
