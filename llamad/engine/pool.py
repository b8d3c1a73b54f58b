"""The slots, the requests that wait for one, and the context memory that they share.

When the memory is full, room is made in this order:

1. the least recently used idle slot forgets what it remembers;
2. the request that was started last gives up its slot and waits at the head of the queue. It goes on from the very
   token and the very random number as soon as there is room: nobody's answer is cut short because of a neighbour, and
   as the oldest always stays, all are served in the end.

A request is started only when its tokens, and some room to grow, fit beside those that are running, so 2 is rare.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from llamad.engine import prefix
from llamad.engine.backend import Backend
from llamad.engine.keeping import Keeping
from llamad.engine.plan import Need, Share
from llamad.engine.recall import Recall, usable
from llamad.engine.slot import Slot, State
from llamad.engine.slot_orders import SlotOrders
from llamad.engine.task import Task

# The part of the shared context (one in so many) that must be free beside a request when it is started.
_GROWTH_PART = 16
_TO_OPEN = (State.STARTED, State.WAIT_OTHER)
_IN_STEP = (State.PROCESSING_PROMPT, State.GENERATING)


class Pool:
    """Who has which slot. Only the engine's thread changes it; others may look at `slots`."""

    def __init__(self, backend: Backend, keeping: Keeping) -> None:
        facts = backend.facts
        self._backend = backend
        self._n_ctx = facts.n_ctx
        self._shared = facts.n_ctx_slot * facts.n_slots > facts.n_ctx
        self._waiting: deque[Task] = deque()
        self._starts = 0
        self.slots: Sequence[Slot[Task]] = [Slot(id) for id in range(facts.n_slots)]
        self._recall = Recall(backend, self.slots, keeping)
        self.orders = SlotOrders(backend, self.slots, self._recall)
        self._keeping = keeping

    @property
    def busy(self) -> list[Slot[Task]]:
        """Slots with a request, in the order of their ids."""
        return [slot for slot in self.slots if slot.state is not State.IDLE]

    @property
    def at_rest(self) -> bool:
        """Nothing runs and nothing waits."""
        return not self._waiting and self.orders.at_rest and all(slot.idle for slot in self.slots)

    def wait(self, task: Task) -> None:
        """Queue a new request."""
        self._waiting.append(task)

    def cancel(self, ids: Collection[int]) -> None:
        """Drop these requests wherever they are. A slot keeps what has been evaluated."""
        self._waiting = deque(task for task in self._waiting if task.id not in ids)
        for slot in self.busy:
            if slot.task.id in ids:
                slot.release()

    def drain(self) -> list[Task]:
        """Take out everything, running or waiting."""
        tasks = [slot.release() for slot in self.busy] + list(self._waiting)
        self._waiting.clear()
        return tasks

    def start(self) -> None:
        """Give waiting requests to idle slots, in order. One that wants a busy slot lets others pass."""
        for task in tuple(self._waiting):
            idle = [slot for slot in self.slots if slot.idle]
            if not idle or not self._fits(task):
                return
            slot = self._choose(task, idle)
            if slot is not None:
                self._waiting.remove(task)
                self._starts += 1
                slot.assign(task, self._starts)

    def shift(self) -> None:
        """Where a request has filled its context, and more is to come: drop a part of it, in the memory too."""
        for slot in self.busy:
            task = slot.task
            if not task.overflows:
                continue
            begin, count = task.shift()
            if slot.state is State.GENERATING and slot.shares:
                # Moving cells would move them for others: what is left is evaluated anew.
                slot.restart()
            elif slot.state is State.GENERATING:
                self._backend.shift(slot.id, begin, count)
                slot.shift(begin, count)

    def open(self, step: int, now: float) -> list[Slot[Task]]:
        """Settle for each STARTED slot what may stay in its memory, and remove the rest; these slots.

        Or have it wait for a sibling.
        """
        opened = []
        to_open = []
        for slot in self.busy:
            slot.used_at_step = step
            if slot.state in _TO_OPEN:
                to_open.append(slot)
        # The first of a family evaluates the prompt that all of it have.
        for slot in sorted(to_open, key=lambda slot: slot.started_order):
            awaited = any(other.task.can_follow(slot.task) for other in self._at_prompt())
            if slot.state is State.WAIT_OTHER and not awaited:
                slot.restart()
            if slot.state is State.WAIT_OTHER:
                continue
            if awaited:
                self._recall.forget(slot)
                slot.wait()
            else:
                n_past = self._recall.settle(slot)
                slot.open(n_past)
                slot.task.start(slot.id, n_past, now)
                opened.append(slot)
        return opened

    def follow(self, leader: Slot[Task], now: float) -> list[Slot[Task]]:
        """Bring the siblings that have waited for this prompt, now evaluated, to where it stands; those slots."""
        waiting = [slot for slot in self.busy if slot.state is State.WAIT_OTHER]
        siblings = [slot for slot in waiting if slot.task.can_follow(leader.task)]
        for slot in siblings:
            self._recall.copy(leader, slot)
            slot.follow(leader.n_exact)
            slot.task.start(slot.id, len(slot.cached), now)
        return siblings

    def needs(self, drafts: Mapping[int, Sequence[int]]) -> list[Need]:
        """What is to be evaluated; `drafts`: by slot, how it may go on."""
        return [
            Need(
                slot=slot.id,
                n_past=len(slot.cached),
                n_pending=slot.n_pending,
                generating=slot.state is State.GENERATING,
                tails=self._tails(slot),
                n_drafted=len(drafts.get(slot.id, ())),
            )
            for slot in self.busy
            if slot.state in _IN_STEP
        ]

    def _tails(self, slot: Slot[Task]) -> tuple[int, ...]:
        if slot.state is State.GENERATING:
            return ()
        return self._recall.n_tail, int(slot.task.repeatable)

    @property
    def n_free(self) -> int:
        """Tokens that the memory has room for beside what the slots have and are about to have; shared ones count twice."""
        return self._n_ctx - sum(len(slot.cached) + (not slot.idle) for slot in self.slots)

    def take_back(self, slot: Slot[Task]) -> None:
        """Remove from the memory what was only drafted."""
        if slot.cached and not self._backend.trim(slot.id, len(slot.cached)):
            self._recall.forget(slot)
            if not slot.idle:
                slot.restart()

    def is_current(self, share: Share) -> bool:
        """Does a planned share still fit its slot? Not after the slot was restarted or lost its request."""
        slot = self.slots[share.slot]
        return slot.state in _IN_STEP and len(slot.cached) == share.start

    def make_room(self) -> bool:
        """Free memory without ending anybody's request; False where only one request is left."""
        return self.forget_idle() or self._park_youngest()

    def forget_idle(self) -> bool:
        """Let the least recently used idle slot forget; False where none remembers anything."""
        return self._recall.forget_idle()

    def advance(self, slot: Slot[Task], count: int) -> None:
        """The next `count` pending tokens of a slot are in the memory now."""
        slot.advance(count)
        if slot.state is State.PROCESSING_PROMPT:
            self._recall.checkpoint(slot)

    def evict(self, slot: Slot[Task]) -> Task:
        """Take a request out of its slot, which forgets everything."""
        task = slot.release()
        self._recall.forget(slot)
        return task

    def _at_prompt(self) -> list[Slot[Task]]:
        return [slot for slot in self.slots if slot.state is State.PROCESSING_PROMPT]

    def _fits(self, task: Task) -> bool:
        busy = self.busy
        if not busy or not self._shared:
            return True
        # Who waits for a sibling's prompt, or is about to, takes none of its own for it.
        used = sum(len(slot.task.tokens) for slot in busy if slot.state is not State.WAIT_OTHER)
        follows = any(task.can_follow(slot.task) for slot in busy if slot.state is not State.GENERATING)
        used += 0 if follows else len(task.tokens)
        return used + self._n_ctx // _GROWTH_PART <= self._n_ctx

    def _choose(self, task: Task, idle: list[Slot[Task]]) -> Slot[Task] | None:
        if task.request.id_slot >= 0:
            slot = self.slots[task.request.id_slot]
            return slot if slot.idle else None
        held = [prefix.Held(slot.id, usable(slot, task), slot.used_at_step) for slot in idle]
        return self.slots[prefix.choose(held, task.tokens, self._keeping.similarity)]

    def _park_youngest(self) -> bool:
        busy = self.busy
        if len(busy) < 2:
            return False
        slot = max(busy, key=lambda slot: slot.started_order)
        self._recall.save(slot)
        self._waiting.appendleft(self.evict(slot))
        return True
