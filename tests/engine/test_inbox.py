"""The inbox: bounded, wakes its reader, and interrupts a decode exactly when nobody wants it."""

from __future__ import annotations

import threading

import pytest

from llamad.engine.inbox import Inbox, Job, Mail
from llamad.engine.vocabulary import GenerateRequest
from tests.conftest import wait_until


class Interrupts:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def submit(inbox: Inbox, id: int) -> bool:
    admitted = inbox.admit(id)
    if admitted:
        inbox.post(Job(GenerateRequest(id, (1,))))
    return admitted


def ids(mail: Mail) -> list[int]:
    return [job.request.id for job in mail.jobs]


def test_takes_everything_in_order_and_only_once() -> None:
    inbox = Inbox(8, Interrupts())
    assert submit(inbox, 1)
    assert submit(inbox, 2)
    assert ids(inbox.take(wait=True)) == [1, 2]
    assert inbox.take(wait=False) == Mail((), frozenset(), False)


def test_the_bound_counts_until_the_last_word() -> None:
    inbox = Inbox(2, Interrupts())
    assert [submit(inbox, id) for id in (1, 2, 3)] == [True, True, False]
    inbox.take(wait=False)
    assert not submit(inbox, 3)
    inbox.end([1])
    assert submit(inbox, 3)


def test_a_cancelled_request_that_was_not_taken_is_never_seen() -> None:
    inbox = Inbox(8, Interrupts())
    submit(inbox, 1)
    submit(inbox, 2)
    inbox.cancel(1)
    mail = inbox.take(wait=True)
    assert (ids(mail), mail.cancelled) == ([2], {1})
    assert inbox.n_alive == 1


def test_unknown_and_ended_ids_are_not_remembered() -> None:
    inbox = Inbox(8, Interrupts())
    submit(inbox, 1)
    inbox.cancel(7)
    inbox.cancel(1)
    inbox.end([1])
    assert inbox.take(wait=False).cancelled == frozenset()


def test_an_id_is_unique_while_it_lives() -> None:
    inbox = Inbox(8, Interrupts())
    submit(inbox, 1)
    with pytest.raises(ValueError, match="twice"):
        submit(inbox, 1)


def test_a_decode_is_interrupted_only_when_all_in_it_are_cancelled() -> None:
    interrupts = Interrupts()
    inbox = Inbox(8, interrupts)
    for id in (1, 2, 3):
        submit(inbox, id)
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
    submit(inbox, 1)
    inbox.take(wait=False)
    inbox.cancel(1)
    assert not inbox.enter([1])


def test_closing_interrupts_and_refuses() -> None:
    interrupts = Interrupts()
    inbox = Inbox(8, interrupts)
    submit(inbox, 1)
    inbox.take(wait=False)
    assert inbox.enter([1])
    inbox.close()
    assert interrupts.count == 1
    assert not submit(inbox, 2)
    assert inbox.take(wait=True).closed


def test_a_waiting_reader_is_woken() -> None:
    inbox = Inbox(8, Interrupts())
    taken: list[Mail] = []
    reader = threading.Thread(target=lambda: taken.append(inbox.take(wait=True)), daemon=True)
    reader.start()
    submit(inbox, 1)
    wait_until(lambda: taken)
    assert ids(taken[0]) == [1]
    reader.join(5)


def test_what_is_let_in_counts_and_can_be_cancelled_before_it_is_posted() -> None:
    inbox = Inbox(1, Interrupts())
    assert inbox.admit(1)
    assert not inbox.admit(2)
    assert inbox.wants(1)
    inbox.cancel(1)
    assert not inbox.wants(1)
    inbox.post(Job(GenerateRequest(1, (1,))))
    assert inbox.take(wait=True) == Mail((), frozenset({1}), False)
    inbox.post(Job(GenerateRequest(1, (1,))))
    assert ids(inbox.take(wait=False)) == []
