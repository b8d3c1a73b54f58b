"""A slot: one sequence of the context, and the machine that a request drives through it.

    IDLE --assign--> STARTED --open--> PROCESSING_PROMPT --prompt_end--> DONE_PROMPT --sample--> GENERATING
     ^                  ^                     |                                            sample |  ^ |
     |                  |  +---restart--------+------------------restart--------------------------+  +-+
     |                wait ^restart             ^
     |                  v  |                    |
     |               WAIT_OTHER -----follow-----+
     +-- release, from every busy state

* STARTED: a request has the slot; the memory of the last one is still in place and nothing is decided about it.
* WAIT_OTHER: a sibling (`n` > 1: several answers to one prompt) evaluates the prompt in another slot; when that is done,
  this slot follows it with a copy. If the sibling is lost before, the slot starts on its own.
* PROCESSING_PROMPT: the reusable prefix is settled, the rest is evaluated chunk by chunk, step by step.
* DONE_PROMPT: the last token of the prompt has been evaluated; its logits wait to be sampled, in the same step.
* GENERATING: exactly one token, the last one sampled, is still to be evaluated.

A slot never holds text or a decision; it holds two lists. `cached` is what the context's memory has of this sequence,
token by token from position 0, and the request's `tokens` are the prompt and everything generated so far. While a
slot is busy, `cached` is a proper prefix of `tokens`, and what is missing is what remains to be evaluated. Therefore
every accident of decoding has one remedy: `restart` goes back to STARTED, which settles the prefix anew from what the
memory really holds and evaluates the rest as if it were a prompt. A request that must make room for others takes the
same way through `release` and a later `assign`.

`cached` outlives the request: the next one may begin alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

from llamad.engine.host_memory import Checkpoint
from llamad.engine.vocabulary import Adapters


class State(Enum):
    """Where a slot is; the values are what `/slots` shows."""

    IDLE = "idle"
    STARTED = "started"
    WAIT_OTHER = "wait_other"
    PROCESSING_PROMPT = "processing_prompt"
    DONE_PROMPT = "done_prompt"
    GENERATING = "generating"


class Event(Enum):
    """What can happen to a slot."""

    ASSIGN = "assign"
    OPEN = "open"
    WAIT = "wait"
    FOLLOW = "follow"
    PROMPT_END = "prompt_end"
    SAMPLE = "sample"
    RESTART = "restart"
    RELEASE = "release"


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.IDLE: {Event.ASSIGN: State.STARTED},
    State.STARTED: {
        Event.OPEN: State.PROCESSING_PROMPT,
        Event.WAIT: State.WAIT_OTHER,
        Event.RELEASE: State.IDLE,
    },
    State.WAIT_OTHER: {
        Event.FOLLOW: State.DONE_PROMPT,
        Event.RESTART: State.STARTED,
        Event.RELEASE: State.IDLE,
    },
    State.PROCESSING_PROMPT: {
        Event.PROMPT_END: State.DONE_PROMPT,
        Event.RESTART: State.STARTED,
        Event.RELEASE: State.IDLE,
    },
    State.DONE_PROMPT: {Event.SAMPLE: State.GENERATING, Event.RELEASE: State.IDLE},
    State.GENERATING: {
        Event.SAMPLE: State.GENERATING,
        Event.RESTART: State.STARTED,
        Event.RELEASE: State.IDLE,
    },
}


class Sequenced(Protocol):
    """What a slot must know of its request."""

    @property
    def tokens(self) -> Sequence[int]:
        """The prompt and all that was generated after it."""
        ...

    @property
    def adapters(self) -> Adapters:
        """What to evaluate them with."""
        ...


T = TypeVar("T", bound=Sequenced)


class Slot(Generic[T]):
    """One sequence. Methods are named after the events; an event that the table lacks raises ValueError."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.state = State.IDLE
        self.cached: list[int] = []
        self.adapters: Adapters = ()
        """What `cached` was evaluated with."""
        self.n_exact = 0
        """So many of `cached` were evaluated where they stand, after those before them; the rest was moved there."""
        self.checkpoints: list[Checkpoint] = []
        """What of the memory can be had back as it was after fewer tokens; of use up to `n_exact`."""
        self.shares = False
        """Some of it may be in cells that belong to another slot, too: those cannot be moved."""
        self.used_at_step = -1
        """The step that last touched the slot, -1 before the first: the order of eviction."""
        self.started_order = 0
        """Grows with each assignment: the youngest request makes room first."""
        self._task: T | None = None

    @property
    def idle(self) -> bool:
        return self.state is State.IDLE

    @property
    def holder(self) -> T | None:
        """The request in the slot, None when idle."""
        return self._task

    @property
    def task(self) -> T:
        """The request in the slot, which must be busy."""
        if self._task is None:
            raise ValueError(f"cannot name the request of slot {self.id}: it is idle")
        return self._task

    @property
    def n_pending(self) -> int:
        """Tokens still to be evaluated; at least 1 in any state that takes part in a step."""
        return len(self.task.tokens) - len(self.cached)

    def assign(self, task: T, order: int) -> None:
        self._move(Event.ASSIGN)
        self._task = task
        self.started_order = order

    def open(self, n_past: int) -> None:
        """Settle that the first `n_past` tokens of the memory stay, as a prefix of this request."""
        self._move(Event.OPEN)
        self.keep(n_past)
        self.adapters = self.task.adapters

    def keep(self, n_past: int) -> None:
        """Only the first `n_past` tokens of the memory are there any more."""
        del self.cached[n_past:]
        self.n_exact = min(self.n_exact, n_past)
        self.shares = self.shares and n_past > 0

    def shift(self, begin: int, count: int) -> None:
        """What is behind `count` tokens from `begin` on stands in their place now; the request's tokens, too."""
        del self.cached[begin : begin + count]
        self.n_exact = min(self.n_exact, begin)

    def wait(self) -> None:
        """Wait for a sibling's prompt; the slot's own memory is gone."""
        self._move(Event.WAIT)
        self.keep(0)

    def follow(self, n_exact: int) -> None:
        """All of the prompt is in the memory now, copied from a sibling."""
        self._move(Event.FOLLOW)
        self.have(self.task.tokens, n_exact)
        self.adapters = self.task.adapters

    def have(self, tokens: Sequence[int], n_exact: int) -> None:
        """These tokens are what the memory has now."""
        self.cached[:] = tokens
        self.n_exact = n_exact

    def advance(self, count: int) -> None:
        """The next `count` pending tokens are in the memory now."""
        n_past = len(self.cached)
        if self.n_exact == n_past:
            self.n_exact += count
        self.cached.extend(self.task.tokens[n_past : n_past + count])
        if self.state is State.PROCESSING_PROMPT and self.n_pending == 0:
            self._move(Event.PROMPT_END)

    def sample(self) -> None:
        self._move(Event.SAMPLE)

    def restart(self) -> None:
        self._move(Event.RESTART)

    def release(self) -> T:
        """Become idle; the memory stays for a successor with the same beginning."""
        task = self.task
        self._move(Event.RELEASE)
        self._task = None
        return task

    def _move(self, event: Event) -> None:
        try:
            self.state = TRANSITIONS[self.state][event]
        except KeyError:
            raise ValueError(f"cannot {event.value} slot {self.id}: it is {self.state.value}") from None
