"""Operators' orders that wait for an end state: numbers for the scheduler, callbacks for the answer."""

from __future__ import annotations

from collections.abc import Callable

from llamad.core.actions import AnswerTicket
from llamad.core.events import Event, TicketDropped

Answered = Callable[[AnswerTicket], None]


class Tickets:
    """Every ticket is answered once or dropped."""

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self._last = 0
        self._open: dict[int, Answered] = {}

    def order(self, make_event: Callable[[int], Event], on_answer: Answered) -> int:
        """Post the event that `make_event` builds for a new ticket. The answer may come before this returns."""
        self._last += 1
        ticket = self._last
        self._open[ticket] = on_answer
        self._post(make_event(ticket))
        return ticket

    def drop(self, ticket: int) -> None:
        """Nobody listens any more; harmless for a ticket that was answered."""
        if self._open.pop(ticket, None) is not None:
            self._post(TicketDropped(ticket))

    def answer(self, action: AnswerTicket) -> None:
        on_answer = self._open.pop(action.ticket, None)
        if on_answer is not None:
            on_answer(action)
