"""Who gets how much of a draft, and what becomes of it. Pure; `drafting` has the theory.

Evaluating a draft is not free: on a CPU each token of it costs half of what a token by itself does, on a GPU little. So
each request has a pace. Drafts get longer while they come true and shorter when they do not. What they gained and cost
is set off against each other; a request that has lost a few tokens' time pauses, longer each time, until one pays again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llamad.engine.drafting import Drafter, Wish
from llamad.engine.plan import fair
from llamad.engine.slot import Slot, State
from llamad.engine.task import Task
from llamad.engine.vocabulary import ModelFacts, Speculative

START = 4
"""Tokens of a first draft."""
CREDIT = 4.0
"""What a request may lose before it pauses, in tokens generated one by one."""
PAUSE_MAX = 63
COST_CPU, COST_GPU = 0.5, 0.1
"""Of evaluating a drafted token, in the same unit (SmolLM2 on two cores: 0.6). What drafting it takes is added."""
_NOT_SAID = Speculative()


class Pace:
    """How far to draft, by how well it went."""

    def __init__(self, n_max: int) -> None:
        self._n_max = n_max
        self._next = min(START, n_max)
        self._credit = CREDIT
        self._losses = 0
        self._pause = 0

    def next(self) -> int:
        """How many tokens to draft in this step."""
        if self._pause:
            self._pause -= 1
            return 0
        return self._next

    def judge(self, n_drafted: int, n_accepted: int, cost: float) -> None:
        """Learn from a draft. `cost`: of each of its tokens."""
        right = n_accepted == n_drafted
        self._next = min(self._n_max, max(self._next, 2 * n_drafted) if right else n_accepted + 1)
        gain = n_accepted - cost * n_drafted
        self._credit = min(CREDIT, self._credit + gain)
        if gain > 0:
            self._losses = 0
        if self._credit < 0:
            self._credit = 0.0
            self._losses += 1
            self._pause = min(2**self._losses - 1, PAUSE_MAX)


@dataclass(slots=True)
class _Run:
    """A request in a slot, as far as drafting is concerned."""

    task: int
    pace: Pace
    source: Drafter | None = None


class Speculation:
    """Drafts for a step, and the verdict on them. Belongs to the engine's thread."""

    def __init__(self, drafters: Sequence[Drafter], n_max: int, facts: ModelFacts) -> None:
        """`n_max`: drafted tokens in a decode call."""
        self._drafters = drafters
        self._n_max = n_max
        self._n_ctx = facts.n_ctx_slot
        self._cost = COST_GPU if facts.n_gpu_layers else COST_CPU
        self._runs: dict[int, _Run] = {}

    def drafts(self, slots: Sequence[Slot[Task]], n_free: int) -> dict[int, list[int]]:
        """By slot, how the sequences of these busy slots may go on: at most `n_free` tokens in all.

        To be asked once a step, also while nobody generates: a draft model keeps up with prompts.
        """
        wishes = self._wishes(slots, max(0, min(n_free, self._n_max)))
        found: dict[int, list[int]] = {}
        for drafter in self._drafters:
            asked = [replace(wish, n_max=0) if wish.slot in found else wish for wish in wishes]
            for wish, draft in zip(asked, drafter.draft(asked), strict=True):
                if draft and wish.n_max:
                    found[wish.slot] = draft[: wish.n_max]
                    self._runs[wish.slot].source = drafter
        return found

    def judge(self, slot: int, n_drafted: int, n_accepted: int) -> None:
        """The last draft for a slot was evaluated as far as `n_drafted`; that much of it has come true."""
        run = self._runs[slot]
        if run.source is not None:
            run.pace.judge(n_drafted, n_accepted, self._cost + run.source.cost)
            run.source.judge(run.task, n_drafted, n_accepted)

    def _wishes(self, slots: Sequence[Slot[Task]], room: int) -> list[Wish]:
        taking_part = [slot for slot in slots if slot.state in (State.PROCESSING_PROMPT, State.GENERATING)]
        wanted = [self._wanted(slot) for slot in taking_part]
        return [
            Wish(slot.id, task.id, task.tokens, n_max, said.n_min, said.p_min, task.n_shifts)
            for slot, n_max in zip(taking_part, fair(wanted, room), strict=True)
            for task in (slot.task,)
            for said in (task.request.speculative or _NOT_SAID,)
        ]

    def _wanted(self, slot: Slot[Task]) -> int:
        """How many drafted tokens could be of use to a slot."""
        if slot.state is not State.GENERATING:
            return 0
        task, run = slot.task, self._run(slot)
        said, limit = task.request.speculative, task.request.max_tokens
        # One more token is sampled behind the last one that is right. Where the context is full it ends, or is shifted.
        most = [run.pace.next(), self._n_ctx - len(task.tokens) - 1]
        most += [limit - task.n_predicted - 1] if limit >= 0 else []
        most += [said.n_max] if said is not None and said.n_max is not None else []
        return max(0, min(most))

    def _run(self, slot: Slot[Task]) -> _Run:
        run = self._runs.get(slot.id)
        if run is None or run.task != slot.task.id:
            run = self._runs[slot.id] = _Run(slot.task.id, Pace(self._n_max))
        return run
