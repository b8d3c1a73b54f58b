"""The book of conversations: which instance has the output of which request, for whom, and for how long.

A conversation is a request that outlives its client. Its id is the client's choice and means something only together
with its owner; its ticket is ours, and is never used twice, so late news of an earlier request under the same id finds
nobody. A new request under an id takes the place of the earlier one.

    WAITING --granted--> RUNNING --ended--> ENDED            the instance can replay it until it says `forgotten`
    WAITING --refused--> FAILED                              so who comes back is told what the client would have been
    RUNNING, ENDED --lost--> FAILED                          the process is gone, and the output with it
    RUNNING, FAILED --asked--> WAITING                       its instance died before the first byte: it tries another

ENDED and FAILED are kept for KEPT_S. The book is bounded: the oldest of those that are over make room, and when all
are under way a new one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from llamad.core.events import LeaseKey
from llamad.core.state import Refusal

KEPT_S = 300.0
"""llama.cpp's time for a finished stream."""
CONVERSATIONS_MAX = 4096
OWNERS_MAX = 256
"""So many of one owner: an instance keeps 1,024 outputs, and one client's must not push out another's."""
DETACHED_WORKER = 0
"""Leases of conversations whose worker has left them are this worker's; real workers count from 1."""


class ConversationState(Enum):
    """Where a conversation is."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


TRANSITIONS: dict[ConversationState, dict[str, ConversationState]] = {
    ConversationState.WAITING: {"granted": ConversationState.RUNNING, "refused": ConversationState.FAILED},
    ConversationState.RUNNING: {
        "ended": ConversationState.ENDED,
        "lost": ConversationState.FAILED,
        "asked": ConversationState.WAITING,
    },
    ConversationState.ENDED: {"lost": ConversationState.FAILED},
    ConversationState.FAILED: {"asked": ConversationState.WAITING},
}


@dataclass(slots=True)
class Conversation:
    """One entry. `key`: the lease that its request waits for or holds; None when it holds none any more."""

    owner: str
    id: str
    ticket: int
    started_at: int
    """Seconds since the epoch."""
    key: LeaseKey | None
    state: ConversationState = ConversationState.WAITING
    child: int = 0
    over_at: float = 0.0
    failure: Refusal | None = None
    followers: dict[LeaseKey, None] = field(default_factory=dict)
    """Those who wait for its grant, to read it."""

    @property
    def over(self) -> bool:
        return self.state in (ConversationState.ENDED, ConversationState.FAILED)

    @property
    def name(self) -> tuple[str, str]:
        return self.owner, self.id

    @property
    def detached_key(self) -> LeaseKey:
        """What its lease is called when no worker has it."""
        return LeaseKey(DETACHED_WORKER, self.ticket)


class Conversations:
    """All of them. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._by_ticket: dict[int, Conversation] = {}
        self._by_name: dict[tuple[str, str], Conversation] = {}
        self._by_key: dict[LeaseKey, Conversation] = {}
        self._last_ticket = 0

    def __len__(self) -> int:
        return len(self._by_ticket)

    # ---- finding

    def named(self, owner: str, id: str) -> Conversation | None:
        return self._by_name.get((owner, id))

    def numbered(self, ticket: int) -> Conversation | None:
        return self._by_ticket.get(ticket)

    def holding(self, key: LeaseKey) -> Conversation | None:
        """The one whose request waits for or holds this lease."""
        return self._by_key.get(key)

    def on(self, child: int) -> list[Conversation]:
        """Those whose output this process has."""
        return [found for found in self._by_ticket.values() if found.child == child]

    def of_worker(self, worker: int) -> list[Conversation]:
        """Those whose lease this worker holds or waits for."""
        return [found for key, found in self._by_key.items() if key.worker == worker]

    def lookup(self, owner: str, ids: Iterable[str]) -> Iterator[Conversation]:
        """Each id stands for itself and for any that begins with it and `::`, one for each model (llama.cpp's rule)."""
        wanted = set(ids)
        for found in self._by_ticket.values():
            if found.owner == owner and (found.id in wanted or _heads(found.id) & wanted):
                yield found

    # ---- happenings

    def begin(self, owner: str, id: str, key: LeaseKey, wall: float) -> Conversation | None:
        """A new one; None when the book is full. Whoever had this name before must have been removed."""
        self._make_place()
        if len(self._by_ticket) >= CONVERSATIONS_MAX:
            return None
        self._last_ticket += 1
        begun = Conversation(owner, id, self._last_ticket, int(wall), key)
        self._by_ticket[begun.ticket] = self._by_name[begun.name] = self._by_key[key] = begun
        return begun

    def surplus_of(self, owner: str) -> Conversation | None:
        """The one to forget before this owner begins another: of those that are over, the one that has been so for longest.

        Without owners all are in one, and the bound of the whole book is enough.
        """
        if not owner or len(self._by_ticket) < OWNERS_MAX:
            return None
        mine = [found for found in self._by_ticket.values() if found.owner == owner]
        over = [found for found in mine if found.over]
        return min(over, key=lambda found: found.over_at) if over and len(mine) >= OWNERS_MAX else None

    def again(self, conversation: Conversation, key: LeaseKey) -> None:
        """The same request asks for another instance."""
        if conversation.state is not ConversationState.WAITING:
            self._move(conversation, "asked")
        self._hold(conversation, key)
        conversation.child = 0
        conversation.failure = None

    def granted(self, conversation: Conversation, child: int) -> list[LeaseKey]:
        """Gives those who waited to follow it."""
        self._move(conversation, "granted")
        conversation.child = child
        return self._take_followers(conversation)

    def detached(self, conversation: Conversation) -> None:
        """Its worker has left it."""
        self._hold(conversation, conversation.detached_key)

    def released(self, conversation: Conversation) -> None:
        """Nobody holds its lease any more."""
        self._hold(conversation, None)

    def ended(self, conversation: Conversation, now: float) -> None:
        """Its generation is over. Saying so twice is harmless: worker and instance both do."""
        if conversation.state is ConversationState.RUNNING:
            self._move(conversation, "ended")
            conversation.over_at = now

    def failed(self, conversation: Conversation, failure: Refusal, now: float) -> list[LeaseKey]:
        """Refused while it waited, or lost with its instance. Gives those who waited to follow it."""
        if conversation.state is ConversationState.FAILED:
            return []
        waiting = conversation.state is ConversationState.WAITING
        self._move(conversation, "refused" if waiting else "lost")
        self._hold(conversation, None)
        conversation.child = 0
        conversation.failure = failure
        conversation.over_at = now
        return self._take_followers(conversation)

    def remove(self, conversation: Conversation) -> list[LeaseKey]:
        """Forget it. Gives those who waited to follow it."""
        if self._by_ticket.pop(conversation.ticket, None) is None:
            return []
        del self._by_name[conversation.name]
        self._hold(conversation, None)
        return self._take_followers(conversation)

    def expire(self, now: float) -> None:
        """Forget what has been over for KEPT_S."""
        for old in [
            found for found in self._by_ticket.values() if found.over and found.over_at + KEPT_S <= now
        ]:
            self.remove(old)

    # ---- inner moves

    def _move(self, conversation: Conversation, happening: str) -> None:
        conversation.state = TRANSITIONS[conversation.state][happening]

    def _hold(self, conversation: Conversation, key: LeaseKey | None) -> None:
        if conversation.key is not None:
            self._by_key.pop(conversation.key, None)
        conversation.key = key
        if key is not None:
            self._by_key[key] = conversation

    def _take_followers(self, conversation: Conversation) -> list[LeaseKey]:
        followers, conversation.followers = list(conversation.followers), {}
        return followers

    def _make_place(self) -> None:
        if len(self._by_ticket) >= CONVERSATIONS_MAX:
            over = [found for found in self._by_ticket.values() if found.over]
            if over:
                self.remove(min(over, key=lambda found: found.over_at))


def _heads(id: str) -> set[str]:
    """Every beginning of `id` that `::` follows."""
    parts = id.split("::")
    return {"::".join(parts[:count]) for count in range(1, len(parts))}
