"""What the next decode call evaluates: a pure function from what the slots need to a batch.

Every generating slot gets its one token first, so a stream is never held up by the length of a neighbour's prompt.
What room is left goes to prompts, most of it to those that need least (`parts`): a short prompt does not wait for a long
one, and of several alike one comes to its first token after another, instead of all together at the end. Beside generating slots prompts get only part of the batch, because the whole step must end before
any stream can go on. What they leave goes to drafts of how streams go on (`drafting`).

A plan depends on nothing but its arguments, so a request that runs alone is cut into the same chunks each time. That
matters, because the order of summation, and with it the logits, depends on the cut: measured differences reach 0.7.
For the same reason a request that is to be repeatable evaluates the last token of its prompt by itself. When it comes
again and finds all of its prompt in the memory, that last token is all it evaluates: the same step, the same logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Need:
    """One busy slot: `n_past` tokens are in the memory and `n_pending` (>= 1) follow.

    `tails`: the last so many pending tokens must not share a step with those before them, for each of these numbers.
    `n_drafted`: tokens that may follow on the last pending one, drafted.
    """

    slot: int
    n_past: int
    n_pending: int
    generating: bool
    tails: tuple[int, ...] = ()
    n_drafted: int = 0

    @property
    def wanted(self) -> int:
        """Tokens that the next step may evaluate."""
        return self.n_pending - max((tail for tail in self.tails if tail < self.n_pending), default=0)


@dataclass(frozen=True, slots=True)
class Share:
    """`count` tokens of one slot, from position `start`. `logits`: the last of them is to be sampled from.

    `n_drafted` more that are drafted, which are to be sampled from, too.
    """

    slot: int
    start: int
    count: int
    logits: bool
    n_drafted: int = 0


def plan(needs: Sequence[Need], n_batch: int, n_prompt_beside: int) -> list[Share]:
    """The next step: at most `n_batch` tokens, of which prompts take at most `n_prompt_beside` if anyone generates.

    With more generating slots than `n_batch` the last ones wait; an engine is not set up that way.
    """
    generating = [need for need in needs if need.generating][:n_batch]
    prompts = [need for need in needs if not need.generating]
    room = n_batch - len(generating)
    counts = parts([need.wanted for need in prompts], min(room, n_prompt_beside) if generating else room)
    drafted = fair([need.n_drafted for need in generating], room - sum(counts))
    shares = [_share(need, 1, n_drafted) for need, n_drafted in zip(generating, drafted, strict=True)]
    shares += [_share(need, count) for need, count in zip(prompts, counts, strict=True) if count]
    return shares


def without_drafts(shares: Sequence[Share]) -> list[Share] | None:
    """The same work and nothing that is only drafted, or None where there is nothing of that kind."""
    if not any(share.n_drafted for share in shares):
        return None
    return [replace(share, n_drafted=0) for share in shares]


def parts(wanted: Sequence[int], room: int) -> list[int]:
    """Parts of `room` for prompts: a quarter of it shared out evenly, so that each goes on at every step; the rest to who
    needs least, one after another."""
    counts = fair(wanted, -(-room // 4))
    room -= sum(counts)
    for index in sorted(range(len(wanted)), key=lambda index: wanted[index] - counts[index]):
        more = min(room, wanted[index] - counts[index])
        counts[index] += more
        room -= more
    return counts


def fair(wanted: Sequence[int], room: int) -> list[int]:
    """Max-min fair parts of `room`: nobody gets more than wanted, and what one leaves is shared by the others."""
    parts = [0] * len(wanted)
    by_size = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for rank, index in enumerate(by_size):
        parts[index] = min(wanted[index], -(-room // (len(wanted) - rank)))
        room -= parts[index]
    return parts


def halves(shares: Sequence[Share]) -> tuple[list[Share], list[Share]] | None:
    """The same work, without drafts, as two batches of (nearly) half the tokens, or None for a single token."""
    total = sum(share.count for share in shares)
    if total < 2:
        return None
    first: list[Share] = []
    second: list[Share] = []
    room = total // 2
    for share in shares:
        take = min(room, share.count)
        room -= take
        first += _cut(share, 0, take)
        second += _cut(share, take, share.count)
    return first, second


def _share(need: Need, count: int, n_drafted: int = 0) -> Share:
    return Share(need.slot, need.n_past, count, count == need.n_pending, n_drafted)


def _cut(share: Share, begin: int, end: int) -> list[Share]:
    """The part [begin, end) of a share; only its very end carries the flag."""
    if begin == end:
        return []
    logits = share.logits and end == share.count
    return [Share(share.slot, share.start + begin, end - begin, logits)]
