"""The slot machine: each legal event does what the table says, each other one raises and changes nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from llamad.engine.slot import TRANSITIONS, Event, Slot, State


def slot_in(state: State, n_tokens: int = 3) -> Slot:
    """A slot brought to `state` by its own events."""
    slot: Slot = Slot(0)
    if state is State.IDLE:
        return slot
    slot.assign(SimpleNamespace(tokens=list(range(n_tokens)), adapters=()), order=1)
    if state is State.STARTED:
        return slot
    if state is State.WAIT_OTHER:
        slot.wait()
        return slot
    slot.open(0)
    if state is State.PROCESSING_PROMPT:
        return slot
    slot.advance(n_tokens)
    if state is State.GENERATING:
        slot.sample()
        slot.task.tokens.append(99)
    return slot


def fire(slot: Slot, event: Event) -> None:
    match event:
        case Event.ASSIGN:
            slot.assign(SimpleNamespace(tokens=[1], adapters=()), order=2)
        case Event.OPEN:
            slot.open(0)
        case Event.WAIT:
            slot.wait()
        case Event.FOLLOW:
            slot.follow(0)
        case Event.PROMPT_END:
            slot._move(event)
        case Event.SAMPLE:
            slot.sample()
        case Event.RESTART:
            slot.restart()
        case Event.RELEASE:
            slot.release()


def can_fire(slot: Slot, event: Event) -> bool:
    try:
        fire(slot, event)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_event_in_every_state(state: State, event: Event) -> None:
    slot = slot_in(state)
    assert slot.state is state
    assert can_fire(slot, event) == (event in TRANSITIONS[state])
    assert slot.state is TRANSITIONS[state].get(event, state)


def test_every_state_is_reached_and_left() -> None:
    targets = {target for moves in TRANSITIONS.values() for target in moves.values()}
    assert targets == set(State) == {state for state, moves in TRANSITIONS.items() if moves}


@pytest.mark.parametrize("state", [state for state in State if state is not State.IDLE])
def test_release_from_every_busy_state_keeps_the_memory(state: State) -> None:
    slot = slot_in(state)
    cached = list(slot.cached)
    slot.release()
    assert (slot.idle, slot.holder, slot.cached) == (True, None, cached)


def test_the_prompt_ends_with_its_last_token_however_it_is_cut() -> None:
    slot = slot_in(State.PROCESSING_PROMPT, n_tokens=5)
    slot.advance(2)
    slot.advance(2)
    assert (slot.state, slot.n_pending) == (State.PROCESSING_PROMPT, 1)
    slot.advance(1)
    assert (slot.state, slot.n_pending, slot.cached) == (State.DONE_PROMPT, 0, [0, 1, 2, 3, 4])


def test_restart_while_generating_leaves_one_token_to_evaluate() -> None:
    slot = slot_in(State.GENERATING)
    slot.restart()
    slot.open(len(slot.cached))
    assert (slot.state, slot.n_pending) == (State.PROCESSING_PROMPT, 1)


def test_open_drops_what_is_not_reused() -> None:
    slot = slot_in(State.IDLE)
    slot.cached = [5, 6, 7]
    slot.assign(SimpleNamespace(tokens=[5, 6, 8], adapters=((0, 1.0),)), order=1)
    slot.open(2)
    assert slot.cached == [5, 6]


def test_the_request_of_an_idle_slot_cannot_be_named() -> None:
    with pytest.raises(ValueError, match="cannot name"):
        _ = slot_in(State.IDLE).task


def test_who_follows_a_sibling_has_all_of_the_prompt() -> None:
    slot = slot_in(State.IDLE)
    slot.cached = [7, 8]
    slot.assign(SimpleNamespace(tokens=[1, 2, 3], adapters=()), order=1)
    slot.wait()
    assert slot.cached == []
    slot.follow(3)
    assert (slot.state, slot.cached, slot.n_pending) == (State.DONE_PROMPT, [1, 2, 3], 0)
