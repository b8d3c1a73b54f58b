"""The inbox: bounded, wakes its reader, and interrupts a decode exactly when nobody wants it."""

from __future__ import annotations

import threading

import pytest

from llamad.engine.inbox import Inbox, Mail
from llamad.engine.vocabulary import GenerateRequest
from tests.conftest import wait_until


class Interrupts:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def request(id: int) -> GenerateRequest:
    return GenerateRequest(id, (1,))


def test_takes_everything_in_order_and_only_once() -> None:
    inbox = Inbox(8, Interrupts())
    assert inbox.submit(request(1))
    assert inbox.submit(request(2))
    assert [item.id for item in inbox.take(wait=True).requests] == [1, 2]
    assert inbox.take(wait=False) == Mail((), frozenset(), False)


def test_the_bound_counts_until_the_last_word() -> None:
    inbox = Inbox(2, Interrupts())
    assert [inbox.submit(request(id)) for id in (1, 2, 3)] == [True, True, False]
    inbox.take(wait=False)
    assert not inbox.submit(request(3))
    inbox.end([1])
    assert inbox.submit(request(3))


def test_a_cancelled_request_that_was_not_taken_is_never_seen() -> None:
    inbox = Inbox(8, Interrupts())
    inbox.submit(request(1))
    inbox.submit(request(2))
    inbox.cancel(1)
    mail = inbox.take(wait=True)
    assert ([item.id for item in mail.requests], mail.cancelled) == ([2], {1})
    assert inbox.n_alive == 1


def test_unknown_and_ended_ids_are_not_remembered() -> None:
    inbox = Inbox(8, Interrupts())
    inbox.submit(request(1))
    inbox.cancel(7)
    inbox.cancel(1)
    inbox.end([1])
    assert inbox.take(wait=False).cancelled == frozenset()


def test_an_id_is_unique_while_it_lives() -> None:
    inbox = Inbox(8, Interrupts())
    inbox.submit(request(1))
    with pytest.raises(ValueError, match="twice"):
        inbox.submit(request(1))


def test_a_decode_is_interrupted_only_when_all_in_it_are_cancelled() -> None:
    interrupts = Interrupts()
    inbox = Inbox(8, interrupts)
    for id in (1, 2, 3):
        inbox.submit(request(id))
    inbox.take(wait=False)
    assert inbox.enter([1, 2])
    inbox.cancel(3)
    inbox.cancel(1)
    assert interrupts.count == 0
    inbox.cancel(2)
    assert interrupts.count == 1
    inbox.leave()
    inbox.cancel(2)
    assert interrupts.count == 1


def test_a_decode_that_nobody_wants_does_not_begin() -> None:
    inbox = Inbox(8, Interrupts())
    inbox.submit(request(1))
    inbox.take(wait=False)
    inbox.cancel(1)
    assert not inbox.enter([1])


def test_closing_interrupts_and_refuses() -> None:
    interrupts = Interrupts()
    inbox = Inbox(8, interrupts)
    inbox.submit(request(1))
    inbox.take(wait=False)
    assert inbox.enter([1])
    inbox.close()
    assert interrupts.count == 1
    assert not inbox.submit(request(2))
    assert inbox.take(wait=True).closed


def test_a_waiting_reader_is_woken() -> None:
    inbox = Inbox(8, Interrupts())
    taken: list[Mail] = []
    reader = threading.Thread(target=lambda: taken.append(inbox.take(wait=True)), daemon=True)
    reader.start()
    inbox.submit(request(1))
    wait_until(lambda: taken)
    assert [item.id for item in taken[0].requests] == [1]
    reader.join(5)
