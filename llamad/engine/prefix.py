"""Which slot takes a request, and how much of what the slot remembers may stay. Pure.

Two facts of llama.cpp shape the rules:

* Logits exist only for tokens evaluated now, so at least the last token of a prompt is evaluated again.
* A sliding-window cache forgets: `seq_rm` back to `n_past` succeeds although cells of the window
  [n_past - n_swa, n_past) are gone, and the answers are then silently wrong. A prefix may stay only if the oldest
  position still held is at or before the window's beginning.
* What the memory holds depends, in the last bits, on the batch in which it was evaluated. A request that is to be
  repeatable therefore does not take the few tokens of a template or a short system prompt from a stranger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# A prefix as long as this is taken from anyone: evaluating it again would cost more than the last bits are worth.
STRANGER_MIN = 256
# Where a memory cannot be cut back, the last of a prompt's checkpoints is so many tokens before its end: a template ends it
# with some that the next turn may not have there.
TAIL = 4
# Another slot's beginning is shared if that saves as much, beside what the own slot has: it costs a look at every cell.
LOAN_MIN = 32


@dataclass(frozen=True, slots=True)
class Held:
    """What an idle slot remembers. `used_at_step`: when it was last used, -1 for never."""

    slot: int
    tokens: list[int]
    used_at_step: int


def common(left: list[int], right: list[int]) -> int:
    """Length of the longest common prefix. Compares slices, so the work is done in C."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def choose(idle: Sequence[Held], prompt: list[int], similarity: float = 0.0) -> int:
    """The slot of `idle` (not empty) for this prompt.

    A request *continues* a slot when it keeps at least half of what the slot remembers, and that is more than
    `similarity`, a part of 1, of the prompt: the longest such prefix wins.
    Everything else goes to the least recently used slot. Without the half, a second conversation that shares only the
    system prompt would take the first one's slot, and both would evaluate their whole history on every turn.
    """
    lengths = {held.slot: common(held.tokens, prompt) for held in idle}
    least = similarity * len(prompt)
    continued = [
        held for held in idle if least < lengths[held.slot] and lengths[held.slot] * 2 >= len(held.tokens)
    ]
    if continued:
        return max(continued, key=lambda held: (lengths[held.slot], held.used_at_step)).slot
    return min(idle, key=lambda held: (held.used_at_step, held.slot)).slot


def chunks(held: list[int], prompt: list[int], n_past: int, n_min: int) -> list[tuple[int, int]]:
    """What of `held` is in the prompt again behind their common `n_past` tokens: (begin in `held`, count), in order.

    As llama-server looks for it: the prompt has what is held, without some pieces. Each chunk has at least `n_min` tokens.
    """
    found: list[tuple[int, int]] = []
    begin = n_past
    while len(prompt) - n_past >= n_min:
        try:
            begin = held.index(prompt[n_past], begin)
        except ValueError:
            break
        count = (
            common(held[begin:], prompt[n_past:])
            if held[begin : begin + n_min] == prompt[n_past : n_past + n_min]
            else 0
        )
        if count:
            found.append((begin, count))
            n_past += count
        begin += count or 1
    return found


def has_window(n_past: int, pos_min: int, n_swa: int) -> bool:
    """Can a request go on behind the first `n_past` of a sequence's tokens, as far as its window is concerned?

    `pos_min`: the oldest position the memory holds of this sequence, -1 for none. `n_swa`: the window.
    """
    return 0 <= pos_min <= max(0, n_past - n_swa)


def reusable(n_common: int, n_tokens: int, pos_min: int, n_swa: int) -> int:
    """How many of the `n_common` remembered tokens may stay for a request of `n_tokens`: all that can, or 0."""
    n_past = min(n_common, n_tokens - 1)
    return n_past if n_past > 0 and has_window(n_past, pos_min, n_swa) else 0


def is_steady(n_common: int, n_tokens: int, n_held: int) -> bool:
    """May a repeatable request of `n_tokens` take these `n_common` of the `n_held` tokens in a slot?

    Yes if it is the request that left them (all of it is there), if it goes on from them (nearly all of them are
    used), or if they are many.
    """
    return n_common >= n_tokens - 1 or n_common * 10 >= n_held * 9 or n_common >= STRANGER_MIN
