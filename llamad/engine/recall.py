"""What of a prompt has been evaluated already, here or elsewhere, and need not be again.

The longest wins of what is found in these places:

* the slot that the request has got (`prefix.choose` gave it the one that remembers most of it);
* any other slot, busy or not, whose beginning can be shared. Where the memory keeps all positions in one place, sharing
  costs nothing: a system prompt that a hundred conversations begin with is there once;
* the host's memory, where the states of what slots had to forget are kept (`host_memory`).

A memory that cannot be cut back is of use as a whole, or from one of its checkpoints on.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamad.engine import prefix
from llamad.engine.backend import Backend
from llamad.engine.host_memory import Bytes, Checkpoint, HostMemory, Kept, latest
from llamad.engine.keeping import Keeping
from llamad.engine.slot import Slot
from llamad.engine.task import Task
from llamad.engine.vocabulary import Adapters


class Recall:
    """Keeps the context's memory and the slots' `cached` in step. Belongs to the engine's thread."""

    def __init__(self, backend: Backend, slots: Sequence[Slot[Task]], keeping: Keeping) -> None:
        self._backend = backend
        self._slots = slots
        self._keeping = keeping
        self._host = HostMemory(keeping.ram_bytes)
        # Tokens at the end of a prompt behind its last checkpoint: templates end with some that the next turn may lack.
        self._cuts = not backend.recurrent and not backend.n_swa
        self.n_tail = prefix.TAIL if keeping.ram_bytes and keeping.n_checkpoints and not self._cuts else 0

    def settle(self, slot: Slot[Task]) -> int:
        """Have the longest beginning of the slot's request in its memory that can be had, and nothing else; its length."""
        own = self._own(slot)
        n_before, moved = self._movable(slot)
        best = max(own, n_before + sum(count for _, count in moved))
        kept, n_kept = self._best_kept(slot.task)
        if self._borrow(slot, max(best, n_kept) + prefix.LOAN_MIN):
            return len(slot.cached)
        if kept is not None and n_kept >= best + prefix.LOAN_MIN and self._bring_back(slot, kept, n_kept):
            return n_kept
        if moved and best > own:
            return self._move(slot, n_before, moved)
        if own * 2 < len(slot.cached):
            self.save(slot)
        if own and self._cut(slot, own):
            slot.keep(own)
            self._prune(slot)
            return own
        self.forget(slot)
        return 0

    def copy(self, source: Slot[Task], target: Slot[Task]) -> None:
        """Let a slot have all that another has."""
        self._backend.clear(target.id)
        self._share(source, target, len(source.cached))

    def forget(self, slot: Slot[Task]) -> None:
        """Remove everything a slot has in the memory."""
        self._backend.clear(slot.id)
        slot.keep(0)
        self._prune(slot)

    def forget_idle(self) -> bool:
        """Make room: the idle slot that was not used for longest forgets; False where none has anything."""
        idle = [slot for slot in self._slots if slot.idle and slot.cached]
        if not idle:
            return False
        slot = min(idle, key=lambda slot: slot.used_at_step)
        if self._keeping.idle_slots:
            self.save(slot)
        self.forget(slot)
        return True

    def put(self, slot: Slot[Task], tokens: Sequence[int], adapters: Adapters, state: Bytes) -> bool:
        """Have a slot remember what a state is of, and nothing else; False, and it remembers nothing, if that cannot be."""
        self.forget(slot)
        while not self._backend.restore(slot.id, state, partial=False):
            if not self.forget_idle():
                return False
        slot.have(tokens, len(tokens))
        slot.adapters = adapters
        return True

    def save(self, slot: Slot[Task]) -> None:
        """Keep the state of a slot that is about to forget, if there is room for it."""
        n_held = len(slot.cached)
        if n_held < prefix.LOAN_MIN or slot.n_exact < n_held:
            return
        if any(
            prefix.common(kept.tokens, slot.cached) == n_held and kept.adapters == slot.adapters
            for kept in self._host.kept
        ):
            return
        if not self._host.make_room(self._backend.state_bytes(slot.id, False)):
            return
        state = self._backend.state(slot.id, False)
        blob = None if state is None else self._host.add(state)
        if blob is not None:
            self._host.keep(Kept(list(slot.cached), slot.adapters, blob, list(slot.checkpoints)))

    def checkpoint(self, slot: Slot[Task]) -> None:
        """A part of a prompt has been evaluated: remember what could not be had again later, if this is a place for it."""
        n_past, known = len(slot.cached), slot.checkpoints
        self._prune(slot)
        if not self.n_tail or slot.n_exact < n_past or any(each.n_past >= n_past for each in known):
            return
        if slot.n_pending < self.n_tail:
            # In the last few tokens, which the next turn may lack.
            return
        since = n_past - max((each.n_past for each in known), default=0)
        if slot.n_pending > self.n_tail and since < max(1, self._keeping.checkpoint_step):
            return
        if not self._host.make_room(self._backend.state_bytes(slot.id, True)):
            return
        state = self._backend.state(slot.id, True)
        blob = None if state is None else self._host.add(state)
        if blob is not None:
            known.append(Checkpoint(n_past, blob))
        while len(known) > self._keeping.n_checkpoints:
            self._host.release(known.pop(0))

    def _movable(self, slot: Slot[Task]) -> tuple[int, list[tuple[int, int]]]:
        """The length of the common beginning, and chunks behind it that may be moved to where the prompt has them.

        What is moved was computed with what stood before it, so answers are not quite those of the whole prompt. A request
        that is to be repeatable gets it only if it asks for it itself.
        """
        task, request = slot.task, slot.task.request
        asked = self._keeping.reuse_min if request.n_cache_reuse is None else request.n_cache_reuse
        if request.n_cache_reuse is None and task.repeatable:
            return 0, []
        if asked <= 0 or not request.cache_prompt or slot.adapters != task.adapters:
            return 0, []
        if slot.shares or not self._cuts or not self._backend.can_shift:
            return 0, []
        prompt = task.tokens[:-1]
        n_past = prefix.common(slot.cached, prompt)
        return n_past, prefix.chunks(slot.cached, prompt, n_past, asked)

    def _move(self, slot: Slot[Task], n_past: int, chunks: list[tuple[int, int]]) -> int:
        if (n_past + sum(count for _, count in chunks)) * 2 < len(slot.cached):
            self.save(slot)
        self._backend.gather(slot.id, n_past, chunks)
        held = [token for begin, count in chunks for token in slot.cached[begin : begin + count]]
        slot.have([*slot.cached[:n_past], *held], min(n_past, slot.n_exact))
        return len(slot.cached)

    def _prune(self, slot: Slot[Task]) -> None:
        """Let go of checkpoints that lie behind what a slot has."""
        n_held, there = len(slot.cached), slot.checkpoints.copy()
        slot.checkpoints[:] = [each for each in there if each.n_past <= n_held and each.blob.data is not None]
        for each in there:
            if each.n_past > n_held:
                self._host.release(each)

    def _own(self, slot: Slot[Task]) -> int:
        n_past = self._reusable(slot, slot)
        if n_past or self._cuts:
            return n_past
        found = latest(
            slot.checkpoints, self._shared_with(slot.task, slot.cached, slot.adapters, slot.n_exact)
        )
        return found.n_past if found else 0

    def _cut(self, slot: Slot[Task], n_past: int) -> bool:
        """Leave the first `n_past` tokens of what a slot has, from a checkpoint if need be."""
        if not self._can_cut(slot, n_past):
            found = latest(slot.checkpoints, n_past)
            state = self._host.touch(found.blob) if found is not None and found.n_past == n_past else None
            if state is None or not self._backend.restore(slot.id, state, partial=True):
                return False
        return self._backend.trim(slot.id, n_past)

    def _can_cut(self, holder: Slot[Task], n_past: int) -> bool:
        """Without a checkpoint?"""
        if self._cuts or n_past == len(holder.cached):
            return True
        backend = self._backend
        return not backend.recurrent and prefix.has_window(n_past, backend.pos_min(holder.id), backend.n_swa)

    def _best_kept(self, task: Task) -> tuple[Kept | None, int]:
        """What is kept in the host's memory that would do for most of this request, and for how much."""
        found = [(self._of_use(kept, task), kept) for kept in self._host.kept]
        n_past, best = max(found, key=lambda pair: pair[0], default=(0, None))
        return best, n_past

    def _of_use(self, kept: Kept, task: Task) -> int:
        n_held = len(kept.tokens)
        n_common = self._shared_with(task, kept.tokens, kept.adapters, n_held)
        if n_common == n_held or self._cuts:
            return n_common
        found = latest(kept.checkpoints, n_common)
        return found.n_past if found else 0

    def _bring_back(self, slot: Slot[Task], kept: Kept, n_past: int) -> bool:
        state = self._host.touch(kept.blob)
        if state is None:
            return False
        if self._own(slot) * 2 < len(slot.cached):
            self.save(slot)
        if not self.put(slot, kept.tokens, kept.adapters, state):
            return False
        slot.checkpoints[:] = kept.checkpoints
        if not self._cut(slot, n_past):
            self.forget(slot)
            return False
        slot.keep(n_past)
        self._prune(slot)
        if n_past == len(kept.tokens):
            self._host.drop(kept.blob)
        return True

    def _borrow(self, slot: Slot[Task], at_least: int) -> bool:
        """Share another slot's beginning, if at least so much of it is wanted."""
        others = [(self._reusable(slot, other), other) for other in self._slots if other is not slot]
        n_past, lender = max(others, key=lambda pair: pair[0], default=(0, slot))
        if n_past < at_least or not self._backend.can_copy(lender.id, n_past):
            return False
        self.save(slot)
        self.forget(slot)
        self._share(lender, slot, n_past)
        slot.have(lender.cached[:n_past], n_past)
        return True

    def _share(self, source: Slot[Task], target: Slot[Task], count: int) -> None:
        self._backend.copy(source.id, target.id, count)
        source.shares = target.shares = True

    def _reusable(self, slot: Slot[Task], holder: Slot[Task]) -> int:
        """How much of what `holder` has would do for the request in `slot`, without a checkpoint."""
        n_past = self._shared_with(slot.task, holder.cached, holder.adapters, holder.n_exact)
        return n_past if self._can_cut(holder, n_past) else 0

    @staticmethod
    def _shared_with(task: Task, tokens: list[int], adapters: Adapters, n_exact: int) -> int:
        """How much of a request stands at the beginning of these tokens and may be taken; never its last token."""
        if not task.request.cache_prompt or adapters != task.adapters:
            return 0
        n_common, n_tokens = min(prefix.common(tokens, task.tokens), n_exact), len(task.tokens)
        if task.repeatable and not prefix.is_steady(n_common, n_tokens, len(tokens)):
            return 0
        return min(n_common, n_tokens - 1)


def usable(slot: Slot[Task], task: Task) -> list[int]:
    """What a slot remembers, as far as this request may make use of it."""
    return slot.cached if task.request.cache_prompt and slot.adapters == task.adapters else []
