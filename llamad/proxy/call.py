"""A request apart from the connection that it came on, and what has been taken for it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from llamad.proxy.answer import Answer, AnswerState
from llamad.proxy.heads import Header, request_head, target_of
from llamad.proxy.lease import Lease
from llamad.proxy.request import Request
from llamad.proxy.sink import Sink

_OUTCOME = {
    AnswerState.LEFT: "hung-up",
    AnswerState.WHOLE: "ok",
    AnswerState.BROKEN: "died",
}

Body = bytes | bytearray


@dataclass(frozen=True, slots=True)
class Call:
    """All that it takes to send a request, as often as need be. `conversation` "": it ends with its client."""

    method: str
    path: str
    target: bytes
    headers: list[Header]
    request_id: str
    client: str
    metered: bool
    conversation: str
    owner: str
    body: Body

    @classmethod
    def of(cls, req: Request, body: Body, conversation: str = "") -> Call:
        scope = req.scope
        return cls(
            # The heads are the same; Falcon drops the body.
            method="GET" if scope["method"] == "HEAD" else scope["method"],
            path=scope["path"],
            target=target_of(scope["raw_path"], scope["query_string"]),
            headers=scope["headers"],
            request_id=req.id,
            client=req.client,
            metered=req.metered,
            conversation=conversation,
            owner=req.owner,
            body=body,
        )

    def head(self, lease: Lease, body: Body) -> bytes:
        """Towards the instance of a lease, with the body that it is to get."""
        return request_head(
            self.method,
            self.target,
            self.headers,
            host="localhost" if lease.address.startswith("unix:") else lease.address,
            authorization=b"Bearer " + lease.token.encode(),
            body_bytes=len(body),
            request_id=self.request_id,
            ticket=lease.ticket,
        )

    def plain_head(self, host: str) -> bytes:
        """Towards the supervisor, which is told whose request it is."""
        return request_head(
            self.method,
            self.target,
            self.headers,
            host=host,
            authorization=None,
            body_bytes=len(self.body),
            request_id=self.request_id,
            client=self.client,
        )


class Run:
    """One call on its way: the lease and the answer that it has. Their end is told once, with what became of them."""

    def __init__(self, call: Call, sink: Sink | None = None) -> None:
        self.call = call
        self.sink = sink
        self.lease: Lease | None = None
        self.answer: Answer | None = None
        self._started = time.monotonic()

    def cut_client(self) -> None:
        """Its client takes nothing."""
        if self.sink is not None:
            self.sink.cut()

    def end(self, outcome: str | None = None) -> None:
        """Give back connection and lease. Idempotent.

        A conversation whose client has not seen the end goes on at its instance.
        """
        lease, answer = self.lease, self.answer
        if lease is None:
            return
        if answer is not None:
            answer.end()
        if self.call.conversation and answer is not None and answer.state is AnswerState.LEFT:
            lease.detach()
            return
        lease.release(
            outcome or (_OUTCOME[answer.state] if answer is not None else "hung-up"),
            status=answer.status if answer is not None else 0,
            sent_bytes=answer.sent_bytes if answer is not None else 0,
            took_s=time.monotonic() - self._started,
            tokens=answer.tokens if answer is not None else 0,
        )
