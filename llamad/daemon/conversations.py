"""Conversations between workers, scheduler and instances: the book's happenings become events and messages.

A conversation has a lease like any request. Three things are special about it: its worker may leave it, and then the
lease goes on under the pseudo worker's number; its end is reported by the instance, and only then is a lease that
nobody holds released; and others may ask where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from llamad.core.actions import RefuseLease
from llamad.core.conversations import Conversation, Conversations, ConversationState
from llamad.core.events import (
    Event,
    LeaseCancelled,
    LeaseDetached,
    LeaseFollowed,
    LeaseKey,
    LeaseReleased,
)
from llamad.core.state import Refusal
from llamad.daemon.loop import Loop, Timer
from llamad.wire import child as child_wire
from llamad.wire import lease as wire

EXPIRE_EVERY_S = 30.0

FULL = Refusal(
    "too-many-conversations",
    503,
    "cannot begin another conversation: all that are kept run",
    retry_after_s=5.0,
)
FRONT_LOST = Refusal(
    "conversation-lost", 410, "cannot go on: the request was lost with a worker of the front"
)


class Instances(Protocol):
    """What is needed of the monitor."""

    def reach(self, child: int) -> tuple[str, str]:
        """Address and token, empty if it has none."""
        ...

    def stop_conversation(self, child: int, ticket: int) -> None: ...


class ConversationDesk:
    """Everything about conversations that passes through the supervisor. `refuse` answers a lease that is asked for.

    `charge`: what an owner's conversation took after it was left; until then its worker counts.
    """

    def __init__(
        self,
        loop: Loop,
        instances: Instances,
        post: Callable[[Event], None],
        refuse: Callable[[RefuseLease], None],
        charge: Callable[[str, int], None] = lambda owner, tokens: None,
    ) -> None:
        self._loop = loop
        self._instances = instances
        self._post = post
        self._refuse = refuse
        self._charge = charge
        self._unpaid: dict[tuple[int, int], str] = {}
        self._early: dict[int, int] = {}
        self._book = Conversations()
        self._following: dict[LeaseKey, int] = {}
        self._expiry: Timer | None = None

    # ---- from workers

    def asked(self, key: LeaseKey, message: wire.Ask) -> bool:
        """Whether the lease may be asked for; if not, it has been refused."""
        found = self._book.named(message.owner, message.conversation)
        if (
            found is not None
            and found.ticket == message.ticket
            and found.state is not ConversationState.ENDED
        ):
            self._book.again(found, key)
            return True
        if found is not None:
            self._end(found, Refusal("conversation-replaced", 409, _replaced(found.id)))
        if (surplus := self._book.surplus_of(message.owner)) is not None:
            self._end(surplus, _unknown(surplus.id))
        if self._book.begin(message.owner, message.conversation, key, self._loop.clock.wall()) is None:
            self._turn_down(key, FULL)
            return False
        self._arm()
        return True

    def cancelled(self, key: LeaseKey) -> None:
        """A request that nobody waits for any more, or a follower that left."""
        if (ticket := self._following.pop(key, 0)) and (followed := self._book.numbered(ticket)):
            followed.followers.pop(key, None)
        if (found := self._book.holding(key)) is not None:
            self._turn_all_down(self._book.remove(found), _stopped(found.id))

    def released(self, key: LeaseKey, outcome: str) -> None:
        """The worker is done: it has seen the end of the answer, or that there will be none."""
        self._following.pop(key, None)
        found = self._book.holding(key)
        if found is None:
            return
        self._early.pop(found.ticket, None)
        self._book.released(found)
        if outcome == "ok":
            self._book.ended(found, self._loop.now())
        else:
            self._fail(found, _lost(found.id, "its instance broke off"))

    def detached(self, key: LeaseKey) -> None:
        """The client is gone. What has ended already needs nobody."""
        found = self._book.holding(key)
        if found is not None and found.state is ConversationState.RUNNING:
            if found.owner:
                self._unpaid[found.child, found.ticket] = found.owner
            self._post(LeaseDetached(key, found.detached_key))
            self._book.detached(found)
            return
        if found is not None:
            # Its end and its client's leave have crossed.
            self._charge(found.owner, self._early.pop(found.ticket, 0))
            self._book.released(found)
        self._post(LeaseReleased(key))

    def worker_lost(self, worker: int) -> None:
        """Its running conversations go on; those that waited are lost, as it had their requests. Before it is posted."""
        for found in self._book.of_worker(worker):
            assert found.key is not None
            if found.state is ConversationState.WAITING:
                self._fail(found, FRONT_LOST)
            else:
                self.detached(found.key)
        for key in [key for key in self._following if key.worker == worker]:
            self.cancelled(key)

    def where(self, key: LeaseKey, message: wire.Where) -> None:
        found = self._book.named(message.owner, message.conversation)
        if found is None:
            self._turn_down(key, _unknown(message.conversation))
        elif found.failure is not None:
            self._turn_down(key, found.failure)
        else:
            self._following[key] = found.ticket
            if found.state is ConversationState.WAITING:
                found.followers[key] = None
            else:
                self._post(LeaseFollowed(key, found.child))

    def lookup(self, message: wire.Lookup) -> wire.Found:
        found = self._book.lookup(message.owner, message.conversations)
        places = [
            self._place(conversation) for conversation, _ in zip(found, range(wire.LOOKUP_MAX), strict=False)
        ]
        return wire.Found(message.lease, places)

    def stop(self, message: wire.Stop) -> None:
        found = self._book.named(message.owner, message.conversation)
        if found is not None:
            self._end(found, _stopped(found.id))

    # ---- from the scheduler

    def granted(self, key: LeaseKey, child: int) -> int:
        """The ticket to hand out with this grant, 0 for none."""
        found = self._book.holding(key)
        if found is None:
            return self._following.get(key, 0)
        for follower in self._book.granted(found, child):
            self._post(LeaseFollowed(follower, child))
        return found.ticket

    def refused(self, action: RefuseLease) -> None:
        self._following.pop(action.key, None)
        found = self._book.holding(action.key)
        if found is not None:
            why = Refusal(action.kind, action.status, action.message, action.retry_after_s, action.details)
            self._fail(found, why)

    def lease_ended(self, key: LeaseKey, message: str) -> None:
        """The process behind it is gone."""
        found = self._book.holding(key)
        if found is not None:
            self._fail(found, _lost(found.id, message))

    # ---- from instances

    def reported(self, child: int, report: child_wire.Conversation) -> None:
        """Only the process that has a conversation is believed about it. One that was stopped is paid for all the same."""
        owner = self._unpaid.pop((child, report.ticket), "")
        if owner:
            self._charge(owner, report.tokens)
        found = self._book.numbered(report.ticket)
        if found is None or found.child != child:
            return
        if found.owner and found.key is not None and found.key != found.detached_key:
            self._early[found.ticket] = report.tokens
        self._book.ended(found, self._loop.now())
        self._release_detached(found)
        if report.state == "forgotten":
            self._book.remove(found)

    def gone(self, child: int, how: str) -> None:
        """A process has ended, and what it could have replayed with it."""
        self._unpaid = {key: owner for key, owner in self._unpaid.items() if key[0] != child}
        for found in self._book.on(child):
            self._fail(found, _lost(found.id, f"its instance ended with {how}"))

    # ---- inner moves

    def _end(self, found: Conversation, why: Refusal) -> None:
        """Whatever it is doing, it stops, and its name is free."""
        key = found.key
        if found.state is ConversationState.WAITING and key is not None:
            self._post(LeaseCancelled(key))
            self._book.released(found)
            self._turn_down(key, why)
        elif found.child:
            self._instances.stop_conversation(found.child, found.ticket)
            self._release_detached(found)
        self._early.pop(found.ticket, None)
        self._turn_all_down(self._book.remove(found), why)

    def _fail(self, found: Conversation, why: Refusal) -> None:
        self._early.pop(found.ticket, None)
        self._turn_all_down(self._book.failed(found, why, self._loop.now()), why)

    def _release_detached(self, found: Conversation) -> None:
        if found.key == found.detached_key:
            self._book.released(found)
            self._post(LeaseReleased(found.detached_key))

    def _turn_all_down(self, keys: Iterable[LeaseKey], why: Refusal) -> None:
        for key in keys:
            self._turn_down(key, why)

    def _turn_down(self, key: LeaseKey, why: Refusal) -> None:
        self._refuse(RefuseLease(key, why.kind, why.status, why.message, why.retry_after_s, why.details))

    def _place(self, found: Conversation) -> wire.Place:
        address, token = self._instances.reach(found.child)
        return wire.Place(found.id, found.started_at, found.over, found.ticket, address, token)

    def _arm(self) -> None:
        if self._expiry is None:
            self._expiry = self._loop.call_later(EXPIRE_EVERY_S, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self._book.expire(self._loop.now())
        if len(self._book):
            self._arm()


def _unknown(id: str) -> Refusal:
    return Refusal(
        "conversation-not-found", 404, f"cannot find conversation {id!r}: it never was, or is forgotten"
    )


def _stopped(id: str) -> Refusal:
    return Refusal("conversation-stopped", 410, f"cannot go on with conversation {id!r}: it was stopped")


def _replaced(id: str) -> str:
    return f"cannot go on with conversation {id!r}: a new request has taken its place"


def _lost(id: str, how: str) -> Refusal:
    return Refusal("conversation-lost", 410, f"cannot go on with conversation {id!r}: {how}")
