"""The lease socket: workers' messages become events, the scheduler's answers become messages.

A worker is one connection and gets a number that is never used twice. It is dropped, and all its leases with it, when it
breaks the protocol or does not read.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection
from dataclasses import replace

from llamad.config.settings import ModelSpec
from llamad.core.actions import EndLease, GrantLease, QueueLease, RefuseLease
from llamad.core.events import (
    Event,
    LeaseAnnounced,
    LeaseAsked,
    LeaseCancelled,
    LeaseDetached,
    LeaseKey,
    LeaseReleased,
    WorkerLost,
)
from llamad.daemon.clients import Clients, wire_rules
from llamad.daemon.conversations import ConversationDesk
from llamad.daemon.kept_leases import KeptLeases
from llamad.daemon.kernel import Kernel
from llamad.daemon.loop import Loop
from llamad.daemon.monitor import Monitor
from llamad.daemon.stream import Acceptor, Stream
from llamad.errors import LlamadError, ProtocolError
from llamad.wire import lease as wire
from llamad.wire.child import Conversation
from llamad.wire.policy import Rules

log = logging.getLogger(__name__)

UNSENT_BYTES_MAX = 4 << 20
WORKERS_MAX = 256


class Worker:
    """One proxy worker's connection."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.protocol = wire.SupervisorSide()
        self.open_leases: set[int] = set()
        self.stream: Stream | None = None

    def send(self, message: wire.Message) -> None:
        if self.stream is not None:
            self.stream.send(wire.encode(message))


class LeaseServer:
    """All workers. `on_workers_changed` is told when one has said hello or is gone; `spec_of` takes any name of a model."""

    def __init__(
        self,
        loop: Loop,
        kernel: Kernel,
        listener: socket.socket,
        monitor: Monitor,
        post: Callable[[Event], None],
        on_workers_changed: Callable[[], None],
        clients: Clients,
        spec_of: Callable[[str], ModelSpec | None],
    ) -> None:
        self._loop = loop
        self._kernel = kernel
        self._monitor = monitor
        self._post = post
        self._on_workers_changed = on_workers_changed
        self._clients = clients
        self._spec_of = spec_of
        self._workers: dict[int, Worker] = {}
        self._last_number = 0
        self._curious: dict[LeaseKey, str] = {}
        self._asks: dict[LeaseKey, wire.Ask] = {}
        self._kept = KeptLeases()
        self.conversations = ConversationDesk(
            loop, monitor, self._conversation_moved, self.refuse, clients.charge
        )
        self._acceptor = Acceptor(loop, kernel, listener, self.connected)

    def worker_pids(self) -> list[int]:
        """Of the workers that said hello."""
        return [worker.pid for worker in self._workers.values() if worker.pid]

    def announce_policy(self) -> None:
        """Tell every worker of a change."""
        self.call_back()
        for worker in self._workers.values():
            if worker.pid:
                worker.send(self._clients.policy)

    def close(self) -> None:
        self._acceptor.close()
        for worker in list(self._workers.values()):
            if worker.stream is not None:
                worker.stream.close()

    # ---- from workers

    def connected(self, connection: socket.socket) -> None:
        if len(self._workers) >= WORKERS_MAX:
            log.warning("cannot take another proxy worker: %d are connected", WORKERS_MAX)
            connection.close()
            return
        self._last_number += 1
        worker = Worker(self._last_number)
        self._workers[worker.number] = worker
        worker.stream = Stream(
            self._loop,
            self._kernel,
            connection,
            UNSENT_BYTES_MAX,
            on_data=lambda data: self._received(worker, data),
            on_end=lambda reason: self._lost(worker, reason),
        )

    def _received(self, worker: Worker, data: bytes) -> None:
        assert worker.stream is not None
        try:
            for message in worker.protocol.feed(data):
                if worker.stream.closed:
                    return
                self._take(worker, message)
        except ProtocolError as error:
            worker.stream.close(str(error))

    def _take(self, worker: Worker, message: wire.FromWorker) -> None:
        match message:
            case wire.Hello():
                self._greeted(worker, message)
            case wire.Ask():
                self._asked(worker, message)
            case wire.Cancel():
                key = self._close_lease(worker, message.lease)
                self._settle(key)
                self.conversations.cancelled(key)
                self._post(LeaseCancelled(key))
            case wire.Release():
                key = self._close_lease(worker, message.lease)
                self._settle(key, message.tokens)
                self.conversations.released(key, message.outcome)
                self._post(LeaseReleased(key))
            case wire.Detach():
                self.conversations.detached(self._close_lease(worker, message.lease))
            case wire.Where():
                if (new := self._open_lease(worker, message.lease)) is not None:
                    self.conversations.where(new, message)
            case wire.Lookup():
                worker.send(self.conversations.lookup(message))
            case wire.Stop():
                self.conversations.stop(message)
                worker.send(wire.Stopped(message.lease))

    def _greeted(self, worker: Worker, message: wire.Hello) -> None:
        worker.pid = message.pid
        worker.send(self._clients.policy)
        for held in message.held[: wire.LEASES_PER_WORKER_MAX]:
            worker.open_leases.add(held.lease)
            self._post(LeaseAnnounced(LeaseKey(worker.number, held.lease), held.child))
        log.debug("proxy worker %d is connected, pid %d", worker.number, worker.pid)
        self._on_workers_changed()

    def _asked(self, worker: Worker, message: wire.Ask) -> None:
        key = self._open_lease(worker, message.lease)
        if key is None or not self._counted_in(worker, key, message):
            return
        if message.conversation and not self.conversations.asked(key, message):
            return
        if message.progress:
            self._curious[key] = message.model
        self._kept.asked(key)
        self._post(
            LeaseAsked(
                key,
                message.model,
                message.autoload,
                message.load,
                message.avoid,
                message.client,
                message.slot,
            )
        )

    def _open_lease(self, worker: Worker, lease: int) -> LeaseKey | None:
        """None: the worker has too many, and has been told."""
        if lease in worker.open_leases:
            raise ProtocolError(f"cannot ask for lease {lease} twice")
        if len(worker.open_leases) >= wire.LEASES_PER_WORKER_MAX:
            text = f"cannot take more than {wire.LEASES_PER_WORKER_MAX} requests at once"
            worker.send(wire.Refused(lease, "too-many-requests", 429, text, retry_after_s=1.0))
            return None
        worker.open_leases.add(lease)
        return LeaseKey(worker.number, lease)

    def _close_lease(self, worker: Worker, lease: int) -> LeaseKey:
        worker.open_leases.discard(lease)
        key = LeaseKey(worker.number, lease)
        self._curious.pop(key, None)
        self._kept.answered(key)
        return key

    def _counted_in(self, worker: Worker, key: LeaseKey, ask: wire.Ask) -> bool:
        """Whether the client may ask for this at all and now; if not, it has been told."""
        try:
            self._clients.begin(ask, self._spec_of(ask.model))
        except LlamadError as error:
            self._close_lease(worker, ask.lease)
            refusal = (error.kind, error.status, error.message, error.retry_after_s, error.details)
            worker.send(wire.Refused(ask.lease, *refusal))
            return False
        self._asks[key] = ask
        return True

    def _settle(self, key: LeaseKey, tokens: int = 0) -> None:
        """A request is over, whatever became of it."""
        ask = self._asks.pop(key, None)
        if ask is not None and ask.load:
            self._clients.end(ask.client, tokens)

    def _conversation_moved(self, event: Event) -> None:
        """One that goes on without its worker still is its client's."""
        if isinstance(event, LeaseDetached) and event.key in self._asks:
            self._asks[event.to] = self._asks.pop(event.key)
        elif isinstance(event, LeaseReleased | LeaseCancelled):
            self._settle(event.key)
        self._post(event)

    def _lost(self, worker: Worker, reason: str) -> None:
        if reason:
            log.warning("dropped proxy worker %d (pid %d): %s", worker.number, worker.pid, reason)
        del self._workers[worker.number]
        for key in [key for key in self._curious if key.worker == worker.number]:
            del self._curious[key]
        self._kept.worker_lost(worker.number)
        self.conversations.worker_lost(worker.number)
        for key in [key for key in self._asks if key.worker == worker.number]:
            self._settle(key)
        self._post(WorkerLost(worker.number))
        self._on_workers_changed()

    # ---- actions

    def queue(self, action: QueueLease) -> None:
        self.call_back()
        self._answer(action.key, wire.Queued(action.key.lease, action.position))

    def grant(self, action: GrantLease) -> None:
        address, token = self._monitor.reach(action.child)
        ticket = self.conversations.granted(action.key, action.child)
        self._curious.pop(action.key, None)
        self._kept.answered(action.key)
        ask, rules = self._asks.get(action.key), self._rules(action.key)
        keep = self._kept.may_keep(
            action.key, ask, limited=ask is not None and self._clients.counts(ask.client)
        )
        self._answer(
            action.key,
            wire.Granted(action.key.lease, action.child, action.model, address, token, rules, ticket, keep),
        )

    def call_back(self) -> None:
        """What workers keep stands in somebody's way, or is out of date."""
        for number in self._kept.called_back():
            if number in self._workers:
                self._workers[number].send(wire.Recall())

    def _rules(self, key: LeaseKey) -> Rules | None:
        """How the request's body is changed, by the name that it asked for."""
        ask = self._asks.get(key)
        spec = self._spec_of(ask.model) if ask is not None else None
        return wire_rules(spec.rules_for(ask.model)) if ask is not None and spec is not None else None

    def refuse(self, action: RefuseLease) -> None:
        action = replace(action, message=self._veiled(action.key, action.message))
        worker = self._workers.get(action.key.worker)
        if worker is not None:
            self._close_lease(worker, action.key.lease)
        self._kept.answered(action.key)
        self._settle(action.key)
        self.conversations.refused(action)
        self._answer(
            action.key,
            wire.Refused(
                action.key.lease,
                action.kind,
                action.status,
                action.message,
                action.retry_after_s,
                action.details,
            ),
        )

    def _veiled(self, key: LeaseKey, message: str) -> str:
        ask = self._asks.get(key)
        return self._clients.veiled(ask.client, message, ask.model, self._spec_of) if ask else message

    def end(self, action: EndLease) -> None:
        action = replace(action, message=self._veiled(action.key, action.message))
        self.conversations.lease_ended(action.key, action.message)
        if action.key.worker not in self._workers:
            # A worker would say release; this conversation has none.
            self._settle(action.key)
        self._answer(action.key, wire.Ended(action.key.lease, action.kind, action.message))

    # ---- from instances

    def progressed(self, names: Collection[str], value: float) -> None:
        """A model that goes by these names is loaded this far."""
        for key, model in self._curious.items():
            if model in names:
                self._answer(key, wire.Progress(key.lease, value))

    def reported(self, child: int, report: Conversation) -> None:
        self.conversations.reported(child, report)

    def gone(self, child: int, how: str) -> None:
        self.conversations.gone(child, how)

    def _answer(self, key: LeaseKey, message: wire.Message) -> None:
        worker = self._workers.get(key.worker)
        if worker is not None:
            worker.send(message)
