"""The book of conversations: names, tickets, ends, and its bound."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from llamad.core import conversations as book
from llamad.core.conversations import TRANSITIONS, Conversation, Conversations, ConversationState
from llamad.core.events import LeaseKey
from llamad.core.state import Refusal

LOST = Refusal("instance-died", 410, "cannot")
KEY = LeaseKey(1, 1)


def begun(conversations: Conversations, id: str = "c", key: LeaseKey = KEY, owner: str = "") -> Conversation:
    conversation = conversations.begin(owner, id, key, 1_700_000_000.5)
    assert conversation is not None
    return conversation


def test_a_life_from_wait_to_replay_to_nothing() -> None:
    conversations = Conversations()
    one = begun(conversations)
    assert (one.state, one.started_at, one.over) == (ConversationState.WAITING, 1_700_000_000, False)
    one.followers[LeaseKey(2, 7)] = None
    assert conversations.granted(one, 5) == [LeaseKey(2, 7)]
    assert conversations.on(5) == [one]
    conversations.detached(one)
    assert conversations.holding(KEY) is None
    assert conversations.holding(LeaseKey(0, one.ticket)) is one
    conversations.ended(one, 10.0)
    conversations.ended(one, 99.0)
    assert (one.state, one.over_at) == (ConversationState.ENDED, 10.0)
    conversations.expire(10.0 + book.KEPT_S - 1)
    assert conversations.named("", "c") is one
    conversations.expire(10.0 + book.KEPT_S)
    assert (conversations.named("", "c"), len(conversations)) == (None, 0)


def test_owners_do_not_see_each_others() -> None:
    conversations = Conversations()
    mine = begun(conversations, owner="alice")
    yours = begun(conversations, owner="bob", key=LeaseKey(1, 2))
    assert conversations.named("alice", "c") is mine
    assert list(conversations.lookup("bob", ["c"])) == [yours]
    assert conversations.named("", "c") is None


def test_a_lookup_finds_an_id_and_its_models() -> None:
    conversations = Conversations()
    ids = ["c", "c::a", "c::org/m:Q4", "cc", "c:a", "d"]
    for number, id in enumerate(ids):
        begun(conversations, id, LeaseKey(1, number))
    assert [found.id for found in conversations.lookup("", ["c"])] == ["c", "c::a", "c::org/m:Q4"]
    assert [found.id for found in conversations.lookup("", ["c::a", "d", "x"])] == ["c::a", "d"]


def test_a_refusal_is_kept_for_who_comes_back() -> None:
    conversations = Conversations()
    one = begun(conversations)
    one.followers[LeaseKey(2, 7)] = None
    assert conversations.failed(one, LOST, 3.0) == [LeaseKey(2, 7)]
    assert (one.failure, one.over, one.key) == (LOST, True, None)


def test_a_second_try_is_the_same_conversation() -> None:
    conversations = Conversations()
    one = begun(conversations)
    conversations.granted(one, 5)
    conversations.failed(one, LOST, 3.0)
    conversations.again(one, LeaseKey(1, 2))
    assert (one.state, one.failure, one.child) == (ConversationState.WAITING, None, 0)
    conversations.granted(one, 6)
    assert conversations.on(6) == [one]


def test_the_book_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "CONVERSATIONS_MAX", 3)
    conversations = Conversations()
    ones = [begun(conversations, str(number), LeaseKey(1, number)) for number in range(3)]
    assert conversations.begin("", "x", LeaseKey(1, 9), 0) is None
    for number in (1, 2):
        conversations.granted(ones[number], 5)
        conversations.ended(ones[number], 10.0 - number)
    begun(conversations, "x", LeaseKey(1, 9))
    assert conversations.named("", "2") is None
    assert conversations.named("", "1") is ones[1]


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes in whatever order: the three indexes agree and tickets are never used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.book = Conversations()
        self.known: list[Conversation] = []
        self.leases = 0
        self.now = 0.0

    def key(self) -> LeaseKey:
        self.leases += 1
        return LeaseKey(1 + self.leases % 2, self.leases)

    @rule(id=st.sampled_from("abc"))
    def begin(self, id: str) -> None:
        if (old := self.book.named("", id)) is not None:
            self.book.remove(old)
        self.known.append(begun(self.book, id, self.key()))

    @rule(
        data=st.data(),
        happening=st.sampled_from(["granted", "detached", "ended", "failed", "again", "remove"]),
    )
    def happen(self, data: st.DataObject, happening: str) -> None:
        alive = [one for one in self.known if self.book.numbered(one.ticket) is one]
        if not alive:
            return
        one = data.draw(st.sampled_from(alive))
        self.now += 1
        match happening:
            case "granted" if one.state is ConversationState.WAITING:
                self.book.granted(one, 3)
            case "detached" if one.state is ConversationState.RUNNING:
                self.book.detached(one)
            case "ended":
                self.book.ended(one, self.now)
            case "failed":
                self.book.failed(one, LOST, self.now)
            case "again" if "asked" in TRANSITIONS[one.state]:
                self.book.again(one, self.key())
            case "remove":
                self.book.remove(one)

    @rule(seconds=st.floats(0, 400))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.book.expire(self.now)

    @invariant()
    def indexes_agree(self) -> None:
        alive = [one for one in self.known if self.book.numbered(one.ticket) is one]
        assert len(alive) == len(self.book)
        assert all(self.book.named("", one.id) is one for one in alive)
        assert all(self.book.holding(one.key) is one for one in alive if one.key)
        assert len({one.ticket for one in self.known}) == len(self.known)
        assert not any(one.over and one.over_at + book.KEPT_S <= self.now - 400 for one in alive)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
