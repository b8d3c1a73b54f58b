"""A worker's end of the lease socket: one connection, many leases on it (`llamad.wire.lease` has the protocol).

A lease is a promise to say `release` exactly once, and an ask a promise to say `cancel` or to take the answer. Both are
kept on every way out, the asker's cancellation included. When the connection is lost, asks in wait fail at once, as
nobody will answer them; granted leases live on, because their streams may well finish, and are announced again in the
next `hello`, so that a supervisor does not evict under them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from typing import Any, cast

import msgspec

from llamad.errors import LlamadError, ProtocolError, UnavailableError
from llamad.proxy.kept import KeptLeases, Kind, kind_of
from llamad.wire import lease as wire

RECONNECT_FIRST_S = 0.05
RECONNECT_MAX_S = 2.0
# Once a stream has broken, the supervisor tells why as soon as it has reaped the child; clients wait that long for it.
REASON_WITHIN_S = 0.5
# The first policy follows the first hello at once; a worker that serves before would turn its first clients away.
POLICY_WITHIN_S = 2.0

log = logging.getLogger(__name__)

Notice = wire.Queued | wire.Progress


class Lease:
    """A granted lease in one request's hands. `release` and `detach` may be called on every way out: only the first counts.

    `kind` None: it is not kept for another request. `recalls`: how many there had been when it was granted.
    `serves_until`: it takes no further request after that; `kept_until`: the same while it serves none, which it does since `kept_at`.
    """

    def __init__(
        self,
        leases: LeaseClient,
        granted: wire.Granted,
        kind: Kind | None = None,
        recalls: int = 0,
        serves_until: float = 0.0,
    ) -> None:
        self._leases = leases
        self._granted = granted
        self.kind = kind
        self.recalls = recalls
        self.serves_until = self.kept_until = serves_until
        self.kept_at = 0.0
        self._ended: asyncio.Future[wire.Ended] = asyncio.get_running_loop().create_future()
        self.number = granted.lease
        self.child = granted.child
        self.model = granted.model
        self.address = granted.address
        self.token = granted.token
        self.rules = granted.rules
        self.ticket = granted.ticket

    def release(
        self, outcome: str, *, status: int = 0, sent_bytes: int = 0, took_s: float = 0.0, tokens: int = 0
    ) -> None:
        self._leases.release(self, wire.Release(self.number, outcome, status, sent_bytes, took_s, tokens))

    def again(self) -> Lease:
        """The same for another request."""
        return Lease(self._leases, self._granted, self.kind, self.recalls, self.serves_until)

    def detach(self) -> None:
        """The client of a conversation is gone: what the instance does for it is the supervisor's business now."""
        self._leases.detach(self)

    async def why_ended(self) -> str | None:
        """What the supervisor says of the child's end, if it does so soon."""
        if not self._leases.connected and not self._ended.done():
            return None
        try:
            async with asyncio.timeout(REASON_WITHIN_S):
                return (await asyncio.shield(self._ended)).message
        except TimeoutError:
            return None

    def child_ended(self, ended: wire.Ended) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)


class LeaseClient:
    """Asks and holds leases over a connection that comes back by itself. `on_policy` gets each policy."""

    def __init__(self, path: str, on_policy: Callable[[wire.Policy], None] = lambda policy: None) -> None:
        self._path = path
        self._on_policy = on_policy
        self._policy_came = asyncio.Event()
        self._next = 0
        self._asked: dict[int, asyncio.Future[Lease]] = {}
        self._kinds: dict[int, Kind | None] = {}
        self._on_notice: dict[int, Callable[[Notice], None]] = {}
        self._questions: dict[int, asyncio.Future[wire.Found | wire.Stopped]] = {}
        self._held: dict[int, Lease] = {}
        self._kept = KeptLeases()
        self._kept_timer: asyncio.TimerHandle | None = None
        self._link: _Link | None = None
        self._connector: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def held_count(self) -> int:
        return len(self._held)

    async def start(self) -> None:
        """Connect, and keep connected until `stop`. Returns after the first try, whether it succeeded or not."""
        await self._try_connect()
        if self._link is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLICY_WITHIN_S):
                    await self._policy_came.wait()
        self._connector = asyncio.create_task(self._keep_connected())

    async def stop(self) -> None:
        if self._connector is not None:
            self._connector.cancel()
            await asyncio.gather(self._connector, return_exceptions=True)
        link, self._link = self._link, None
        if link is not None:
            link.close()

    async def ask(
        self, request: wire.Ask | wire.Where, on_notice: Callable[[Notice], None] | None = None
    ) -> Lease:
        """Wait for a lease; its number in `request` is of no matter.

        Raises LlamadError with the supervisor's own refusal, or `supervisor-gone`. `on_notice` hears of each change on
        the way there.
        """
        loop = asyncio.get_running_loop()
        kind = kind_of(request)
        kept = self._kept.take(kind, loop.time()) if kind is not None else None
        if kept is not None:
            lease = self._held[kept.number] = kept.again()
            return lease
        self._check_room()
        number = self._number()
        answer: asyncio.Future[Lease] = loop.create_future()
        self._asked[number] = answer
        self._kinds[number] = kind
        if on_notice is not None:
            self._on_notice[number] = on_notice
        self._send(msgspec.structs.replace(request, lease=number))
        try:
            return await answer
        except asyncio.CancelledError:
            self._withdraw(number, answer)
            raise
        finally:
            self._on_notice.pop(number, None)
            self._kinds.pop(number, None)

    async def lookup(self, conversations: list[str], owner: str) -> list[wire.Place]:
        """Where these conversations are. Raises LlamadError `supervisor-gone`."""
        found = await self._question(wire.Lookup(self._number(), conversations, owner))
        return found.places if isinstance(found, wire.Found) else []

    async def stop_conversation(self, conversation: str, owner: str) -> None:
        """End it, if it is there. Raises LlamadError `supervisor-gone`."""
        await self._question(wire.Stop(self._number(), conversation, owner))

    async def _question(self, message: wire.Lookup | wire.Stop) -> wire.Found | wire.Stopped:
        self._check_room()
        answer: asyncio.Future[wire.Found | wire.Stopped] = asyncio.get_running_loop().create_future()
        self._questions[message.lease] = answer
        self._send(message)
        try:
            return await answer
        finally:
            self._questions.pop(message.lease, None)

    def _check_room(self) -> None:
        if self._link is None:
            raise _supervisor_gone()
        if len(self._asked) + len(self._held) + len(self._kept) >= wire.LEASES_PER_WORKER_MAX:
            raise UnavailableError(
                f"cannot take more than {wire.LEASES_PER_WORKER_MAX} requests in one worker",
                kind="worker-full",
                retry_after_s=1,
            )

    def _number(self) -> int:
        self._next += 1
        return self._next

    def release(self, lease: Lease, message: wire.Release) -> None:
        if self._held.get(lease.number) is not lease:
            return
        del self._held[lease.number]
        loop = asyncio.get_running_loop()
        if message.outcome != "ok" or self._link is None or not self._kept.put(lease, loop.time()):
            self._send(message)
        elif self._kept_timer is None:
            self._kept_timer = loop.call_at(lease.kept_until, self._end_kept)

    def detach(self, lease: Lease) -> None:
        if self._held.get(lease.number) is lease:
            del self._held[lease.number]
            self._send(wire.Detach(lease.number))

    def _end_kept(self) -> None:
        """Give back what has been kept for long enough."""
        loop = asyncio.get_running_loop()
        self._give_back(self._kept.expired(loop.time()))
        end = self._kept.next_end()
        self._kept_timer = None if end is None else loop.call_at(end, self._end_kept)

    def _give_back(self, leases: list[Lease]) -> None:
        for lease in leases:
            self._send(wire.Release(lease.number))

    def _withdraw(self, number: int, answer: asyncio.Future[Lease]) -> None:
        """The client left; the grant may have come in the same moment."""
        if self._asked.pop(number, None) is not None:
            self._send(wire.Cancel(number))
        elif answer.done() and not answer.cancelled() and answer.exception() is None:
            answer.result().release("hung-up")

    def _send(self, message: wire.Message) -> None:
        if self._link is not None:
            self._link.send(message)

    # ---- from the link

    def received(self, message: wire.FromSupervisor) -> None:
        """Messages for leases that are unknown here crossed a cancel or a release, and are void."""
        match message:
            case wire.Granted():
                self._granted(message)
            case wire.Refused():
                answer = self._asked.pop(message.lease, None)
                if answer is not None and not answer.done():
                    answer.set_exception(_refusal(message))
            case wire.Ended():
                if message.lease in self._held:
                    self._held[message.lease].child_ended(message)
                self._give_back(self._kept.ended(message.lease))
            case wire.Recall():
                self._give_back(self._kept.recall())
            case wire.Queued() | wire.Progress():
                if message.lease in self._on_notice:
                    self._on_notice[message.lease](message)
            case wire.Found() | wire.Stopped():
                question = self._questions.get(message.lease)
                if question is not None and not question.done():
                    question.set_result(message)
            case wire.Policy():
                self._on_policy(message)
                self._policy_came.set()

    def _granted(self, message: wire.Granted) -> None:
        answer = self._asked.get(message.lease)
        if answer is None or answer.done():
            # Done but still asked: its asker has been cancelled and is about to withdraw, which frees the grant.
            return
        del self._asked[message.lease]
        kind = self._kinds.get(message.lease) if message.keep else None
        until = asyncio.get_running_loop().time() + wire.SERVE_S if kind is not None else 0.0
        lease = self._held[message.lease] = Lease(self, message, kind, self._kept.recalls, until)
        answer.set_result(lease)

    def link_lost(self, link: _Link) -> None:
        if link is not self._link:
            return
        self._link = None
        self._kept.recall()
        log.warning(
            "lost the supervisor: %d requests in wait fail, %d go on", len(self._asked), len(self._held)
        )
        asked, self._asked = self._asked, {}
        waiting: list[asyncio.Future[Any]] = [*asked.values(), *self._questions.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(_supervisor_gone())

    # ---- connecting

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = RECONNECT_FIRST_S
        while True:
            since = loop.time()
            if self._link is not None:
                await self._link.lost.wait()
            if loop.time() - since > RECONNECT_MAX_S:
                pause_s = RECONNECT_FIRST_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RECONNECT_MAX_S)
            await self._try_connect()

    async def _try_connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, link = await loop.create_unix_connection(lambda: _Link(self), self._path)
        except OSError as error:
            log.debug("cannot reach the supervisor at %s: %s", self._path, error)
            return
        self._link = link
        held = [wire.Held(lease.number, lease.child, lease.model) for lease in self._held.values()]
        link.send(wire.Hello(os.getpid(), held=held))


class _Link(asyncio.Protocol):
    """One connection to the supervisor. The loop joins the writes of one tick."""

    def __init__(self, leases: LeaseClient) -> None:
        self._leases = leases
        self._side = wire.WorkerSide()
        self._transport: asyncio.Transport | None = None
        self.lost = asyncio.Event()

    def send(self, message: wire.Message) -> None:
        if self._transport is not None and not self.lost.is_set():
            self._transport.write(wire.encode(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._side.feed(data):
                self._leases.received(message)
        except ProtocolError as error:
            log.error("cannot go on with the supervisor: %s", error)
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._leases.link_lost(self)


def _refusal(refused: wire.Refused) -> LlamadError:
    return LlamadError(
        refused.message,
        kind=refused.kind,
        status=refused.status,
        retry_after_s=refused.retry_after_s,
        details=refused.details,
    )


def _supervisor_gone() -> UnavailableError:
    return UnavailableError(
        "cannot reach the supervisor: it is restarting or gone", kind="supervisor-gone", retry_after_s=1
    )
