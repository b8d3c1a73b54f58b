"""Sending a request up and its answer down, byte for byte, for both kinds of upstream.

For an instance: lease, request, answer. If the instance breaks off before the head of its answer is whole, the client
has seen nothing of it, so a second lease is asked for, on another child, once. Past that it is told (502).
"""

from __future__ import annotations

import time
from functools import partial

import falcon.asgi

from llamad.errors import ChildError, LlamadError, UnavailableError
from llamad.proxy.answer import Answer, AnswerState
from llamad.proxy.connection import UpstreamBroke
from llamad.proxy.heads import request_head, target_of
from llamad.proxy.lease import Lease, LeaseClient
from llamad.proxy.lookup import Wish
from llamad.proxy.meter import Meter
from llamad.proxy.pool import Pool
from llamad.proxy.request import Request
from llamad.proxy.rules import apply

ATTEMPTS_MAX = 2

_OUTCOME = {
    AnswerState.LEFT: "hung-up",
    AnswerState.WHOLE: "ok",
    AnswerState.BROKEN: "died",
}

Body = bytes | bytearray


class InstanceRelay:
    """Relays to whichever instance the supervisor grants."""

    def __init__(self, leases: LeaseClient, pool: Pool) -> None:
        self._leases = leases
        self._pool = pool

    async def send(self, req: Request, resp: falcon.asgi.Response, wish: Wish, body: Body) -> None:
        """Answer with the instance's answer. Raises LlamadError: a refusal, or 502 `instance-died`."""
        avoid = 0
        for attempt in range(1, ATTEMPTS_MAX + 1):
            lease = await self._leases.ask(
                wish.model,
                autoload=wish.autoload,
                load=wish.load,
                avoid=avoid,
                client=req.client,
                on_queued=req.note_position,
            )
            run = _Run(lease)
            req.cleanup.callback(run.end)
            sent = apply(lease.rules, body) if lease.rules is not None and wish.ruled else body
            try:
                connection = await self._pool.exchange(lease.address, _instance_head(req, lease, sent), sent)
            except UpstreamBroke as broke:
                error = await _instance_died(lease, broke) if attempt == ATTEMPTS_MAX else None
                run.end("died")
                if error is not None:
                    raise error from None
                avoid = lease.child
                continue
            run.answer = Answer(self._pool, lease.address, connection, partial(_instance_died, lease))
            run.answer.meter = Meter(len(body)) if req.metered else None
            run.answer.send_head(resp)
            return


class _Run:
    """One lease in use. Its end is told once, with what became of the answer."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._started = time.monotonic()
        self.answer: Answer | None = None

    def end(self, outcome: str | None = None) -> None:
        """Give back connection and lease. Idempotent."""
        status = sent_bytes = tokens = 0
        if self.answer is not None:
            self.answer.end()
            outcome = outcome or _OUTCOME[self.answer.state]
            status, sent_bytes = self.answer.status, self.answer.sent_bytes
            tokens = self.answer.tokens
        self._lease.release(
            outcome or "hung-up",
            status=status,
            sent_bytes=sent_bytes,
            took_s=time.monotonic() - self._started,
            tokens=tokens,
        )


class SupervisorRelay:
    """Relays to the admin socket: the public port's model routes are the admin socket's own documents."""

    def __init__(self, admin_socket: str, pool: Pool) -> None:
        self._address = f"unix:{admin_socket}"
        self._pool = pool

    async def send(self, req: Request, resp: falcon.asgi.Response, body: Body) -> None:
        """Answer with the supervisor's answer, however long it takes. Raises LlamadError (503 `supervisor-gone`)."""
        head = _head(req, host="llamad", authorization=None, body=body, client=req.client)
        try:
            connection = await self._pool.exchange(self._address, head, body)
        except UpstreamBroke as broke:
            raise await _supervisor_gone(broke) from None
        answer = Answer(self._pool, self._address, connection, _supervisor_gone)
        req.cleanup.callback(answer.end)
        answer.send_head(resp)


def _instance_head(req: Request, lease: Lease, body: Body) -> bytes:
    host = "localhost" if lease.address.startswith("unix:") else lease.address
    return _head(req, host=host, authorization=b"Bearer " + lease.token.encode(), body=body)


def _head(req: Request, *, host: str, authorization: bytes | None, body: Body, client: str = "") -> bytes:
    scope = req.scope
    return request_head(
        scope["method"],
        target_of(scope["raw_path"], scope["query_string"]),
        scope["headers"],
        host=host,
        authorization=authorization,
        body_bytes=len(body),
        request_id=req.id,
        client=client,
    )


async def _instance_died(lease: Lease, broke: UpstreamBroke) -> LlamadError:
    reason = await lease.why_ended() or broke.message
    return ChildError(
        f"cannot finish the answer of '{lease.model}': {reason}", details={"model": lease.model}
    )


async def _supervisor_gone(broke: UpstreamBroke) -> LlamadError:
    return UnavailableError(
        f"cannot reach the supervisor: {broke.message}", kind="supervisor-gone", retry_after_s=1
    )
