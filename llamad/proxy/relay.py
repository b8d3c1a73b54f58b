"""Sending a request up and its answer down, byte for byte, for both kinds of upstream.

For an instance: lease, request, answer. If the instance breaks off before the head of its answer is whole, the client
has seen nothing of it, so a second lease is asked for, on another child, once. Past that it is told (502).

Two kinds of request are opened by a task apart from the call that its client waits in: one whose client wants to see
what it waits for, as its answer begins before its outcome is known; and a conversation, which goes on without its
client (`orphans`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import falcon.asgi

from llamad.errors import ChildError, LlamadError, UnavailableError
from llamad.proxy.answer import Answer
from llamad.proxy.call import Call, Run
from llamad.proxy.connection import UpstreamBroke
from llamad.proxy.heads import target_of
from llamad.proxy.lease import Lease, LeaseClient, Notice
from llamad.proxy.lookup import Wish
from llamad.proxy.orphans import Orphans
from llamad.proxy.pool import Pool
from llamad.proxy.progress import Progress, WaitingAnswer
from llamad.proxy.request import Request
from llamad.proxy.rules import apply
from llamad.proxy.turns import Turns
from llamad.wire import lease as wire
from llamad.wire.meter import Meter
from llamad.wire.stream import STREAM_PATH

ATTEMPTS_MAX = 2
# Reads of one worker that the supervisor has at once.
READS_MAX = 4

Body = bytes | bytearray


class InstanceRelay:
    """Relays to whichever instance the supervisor grants."""

    def __init__(self, leases: LeaseClient, pool: Pool, orphans: Orphans) -> None:
        self._leases = leases
        self._pool = pool
        self._orphans = orphans

    async def send(
        self,
        req: Request,
        resp: falcon.asgi.Response,
        wish: Wish,
        body: Body,
        progress: Progress | None = None,
    ) -> None:
        """Answer with the instance's answer. Raises LlamadError: a refusal, or 502 `instance-died`.

        `progress`: the client wants to see what it waits for.
        """
        # Only what may load a model is worth going on with.
        run = Run(Call.of(req, body, req.conversation if wish.load else ""), req.sink)
        if progress is None and not run.call.conversation:
            req.cleanup.callback(run.end)
            await self._open(run, wish, req.note_position)
        elif await self._open_apart(req, resp, run, wish, progress):
            return
        assert run.answer is not None
        run.answer.send_head(resp, req.sink)
        if req.method == "HEAD":
            # Nobody takes the body, which is no more than a small document; left as it is, it would pass for a hang-up.
            await run.answer.rest()

    async def _open_apart(
        self, req: Request, resp: falcon.asgi.Response, run: Run, wish: Wish, progress: Progress | None
    ) -> bool:
        """Open by a task. True: the answer has begun already."""

        def noticed(notice: Notice) -> None:
            req.note_position(notice)
            if progress is not None:
                progress.note(notice)

        opening = asyncio.ensure_future(self._open(run, wish, noticed, progress is not None))
        req.cleanup.callback(self._orphans.leave, opening, run)
        if progress is not None and await progress.began(opening):
            WaitingAnswer(opening, run, progress, req.sink).send_head(resp)
            return True
        await asyncio.shield(opening)
        return False

    async def _open(
        self, run: Run, wish: Wish, on_notice: Callable[[Notice], None], progress: bool = False
    ) -> None:
        """Give `run` a lease and the head of an answer. Raises LlamadError."""
        call, avoid, ticket = run.call, 0, 0
        for attempt in range(1, ATTEMPTS_MAX + 1):
            request = wire.Ask(
                0,
                wish.model,
                autoload=wish.autoload,
                load=wish.load,
                avoid=avoid,
                client=call.client,
                slot=wish.slot,
                progress=progress,
                conversation=call.conversation,
                owner=call.owner,
                ticket=ticket,
            )
            run.lease = lease = await self._leases.ask(request, on_notice)
            body = apply(lease.rules, call.body) if lease.rules is not None and wish.ruled else call.body
            try:
                connection = await self._pool.exchange(
                    lease.address, call.head(lease, body), body, run.cut_client
                )
            except UpstreamBroke as broke:
                last = attempt == ATTEMPTS_MAX or broke.silent
                error = await _instance_died(lease, broke) if last else None
                run.end("died")
                if error is not None:
                    raise error from None
                avoid, ticket = lease.child, lease.ticket
                continue
            reason = partial(_instance_died, lease)
            run.answer = Answer(self._pool, lease.address, connection, reason, call.path)
            run.answer.meter = Meter(len(call.body)) if call.metered else None
            return

    async def follow(self, req: Request, resp: falcon.asgi.Response, conversation: str) -> None:
        """Answer with what a conversation has put out. Raises LlamadError: 404, 410, or why it never began."""
        target = target_of(STREAM_PATH.encode(), req.scope["query_string"])
        run = Run(replace(Call.of(req, b""), target=target), req.sink)
        req.cleanup.callback(run.end)
        run.lease = lease = await self._leases.ask(wire.Where(0, conversation, req.owner))
        try:
            connection = await self._pool.exchange(
                lease.address, run.call.head(lease, b""), b"", run.cut_client
            )
        except UpstreamBroke as broke:
            raise await _instance_died(lease, broke) from None
        run.answer = Answer(self._pool, lease.address, connection, partial(_instance_died, lease))
        run.answer.send_head(resp, req.sink)


class SupervisorRelay:
    """Relays to the admin socket: the public port's model routes are the admin socket's own documents.

    The supervisor is one thread and takes few connections, operators' among them. So reads take turns, and a document is
    taken whole before its client, who may be slow, gets any of it. Orders wait for what they order, and are operators'.
    """

    def __init__(self, admin_socket: str, pool: Pool) -> None:
        self._address = f"unix:{admin_socket}"
        self._pool = pool
        self._reads = Turns(READS_MAX)

    async def send(self, req: Request, resp: falcon.asgi.Response, body: Body) -> None:
        """Answer with the supervisor's answer, however long it takes. Raises LlamadError (503 `supervisor-gone`)."""
        try:
            if req.method == "POST":
                (await self._begin(req, body)).send_head(resp, req.sink)
                return
            async with self._reads.turn(req.client):
                answer = await self._begin(req, body)
                answer.send_head(resp, req.sink)
                if not answer.is_event_stream:
                    resp.data, resp.stream = await answer.rest(), None
                    answer.end()
        except UpstreamBroke as broke:
            raise await _supervisor_gone(broke) from None

    async def _begin(self, req: Request, body: Body) -> Answer:
        """Raises UpstreamBroke."""
        head = Call.of(req, body).plain_head("llamad")
        connection = await self._pool.exchange(self._address, head, body)
        answer = Answer(self._pool, self._address, connection, _supervisor_gone)
        req.cleanup.callback(answer.end)
        return answer


async def _instance_died(lease: Lease, broke: UpstreamBroke) -> LlamadError:
    if broke.silent:
        return LlamadError(
            f"cannot finish the answer of '{lease.model}': {broke.message}", kind="silent", status=504
        )
    reason = await lease.why_ended() or broke.message
    return ChildError(
        f"cannot finish the answer of '{lease.model}': {reason}", details={"model": lease.model}
    )


async def _supervisor_gone(broke: UpstreamBroke) -> LlamadError:
    return UnavailableError(
        f"cannot reach the supervisor: {broke.message}", kind="supervisor-gone", retry_after_s=1
    )
