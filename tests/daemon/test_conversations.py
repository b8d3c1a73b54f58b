"""Conversations through the supervisor: real scheduler, real lease socket, instances that only the test plays."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from llamad.core import actions
from llamad.core.conversations import OWNERS_MAX
from llamad.core.events import ChildExited, ChildReady, LeaseKey, Limits, ModelEntry, ModelsConfigured
from llamad.core.scheduler import Scheduler
from llamad.daemon.clients import Clients
from llamad.daemon.driver import Driver
from llamad.daemon.kernel import Kernel
from llamad.daemon.leases import LeaseServer
from llamad.daemon.loop import Loop
from llamad.wire import lease as wire
from llamad.wire.child import Conversation
from tests.daemon.parts import HandClock
from tests.daemon.test_leases import OneInstance

CHILD = 1


class AnyInstance(OneInstance):
    """Every child is there."""

    def reach(self, child: int) -> tuple[str, str]:
        return (f"127.0.0.1:{child}", f"token-{child}") if child else ("", "")


class Bench:
    """A supervisor's inner half with the models a and b, of which one may be loaded."""

    def __init__(self, directory: Any) -> None:
        self.clock = HandClock()
        self.loop = Loop(self.clock)
        self.driver = Driver(self.loop, Scheduler())
        self.instances = AnyInstance()
        self.done: list[actions.Action] = []
        kernel = Kernel()
        self.server = LeaseServer(
            self.loop,
            kernel,
            kernel.listen_unix(str(directory / "lease.sock"), 0o600, 10),
            self.instances,
            self.driver.post,
            lambda: None,
            Clients(self.loop.now),
            lambda name: None,
        )
        performers = {
            actions.QueueLease: self.server.queue,
            actions.GrantLease: self.server.grant,
            actions.RefuseLease: self.server.refuse,
            actions.EndLease: self.server.end,
        }
        for kind in actions.Action.__args__:
            self.driver.performs(kind, performers.get(kind, self.done.append))
        entries = (ModelEntry("a", aliases=("alias",), fingerprint="1"), ModelEntry("b", fingerprint="1"))
        self.driver.post(ModelsConfigured(entries, Limits(models_max=1), starting=True))

    def worker(self) -> Worker:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.server.connected(theirs)
        return Worker(self, ours)

    def ready(self, child: int = CHILD) -> None:
        self.driver.post(ChildReady(child))

    def exit(self, child: int = CHILD) -> None:
        self.driver.post(ChildExited(child, signal=9))
        self.server.gone(child, "signal 9")

    def report(self, ticket: int, state: str, child: int = CHILD, tokens: int = 0) -> None:
        self.server.reported(child, Conversation(ticket, state, tokens))

    def leases(self, model: str = "a") -> int:
        return next(view.leases for view in self.driver.view().models if view.name == model)

    def turn(self) -> None:
        for _ in range(4):
            self.loop.run_once(0)


class Worker:
    def __init__(self, bench: Bench, connection: socket.socket) -> None:
        self._bench = bench
        self._connection = connection
        connection.setblocking(False)
        self._protocol = wire.WorkerSide()
        self.say(wire.Hello(1))
        self.hear()

    def say(self, *messages: wire.Message) -> None:
        self._connection.sendall(b"".join(map(wire.encode, messages)))
        self._bench.turn()

    def hear(self) -> list[Any]:
        self._bench.turn()
        try:
            return self._protocol.feed(self._connection.recv(1 << 20))
        except BlockingIOError:
            return []

    def ask(self, *messages: wire.Message) -> Any:
        """Say it, and give the last of what comes back."""
        self.say(*messages)
        return self.hear()[-1]

    def die(self) -> None:
        self._connection.close()
        self._bench.turn()


@pytest.fixture
def bench(tmp_path: Any) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.server.close()
    bench.loop.close()


def begin(bench: Bench, worker: Worker, lease: int = 1, id: str = "c", **fields: Any) -> int:
    """A conversation that runs on child 1; its ticket."""
    worker.say(wire.Ask(lease, "a", conversation=id, **fields))
    bench.ready()
    granted = worker.hear()[-1]
    assert isinstance(granted, wire.Granted)
    assert granted.ticket
    return granted.ticket


def test_a_detached_generation_keeps_its_model_until_the_instance_reports_its_end(bench: Bench) -> None:
    worker = bench.worker()
    ticket = begin(bench, worker)
    worker.say(wire.Detach(1))
    assert bench.leases() == 1
    bench.report(ticket + 1, "ended")
    bench.report(ticket, "ended", child=99)
    assert bench.leases() == 1
    bench.report(ticket, "ended")
    assert bench.leases() == 0


def test_an_end_that_crosses_the_detach(bench: Bench) -> None:
    worker = bench.worker()
    ticket = begin(bench, worker)
    bench.report(ticket, "ended")
    assert bench.leases() == 1, "the client still reads"
    worker.say(wire.Detach(1))
    assert bench.leases() == 0


def test_a_lost_worker_has_detached_what_ran_and_lost_what_waited(bench: Bench) -> None:
    worker, other = bench.worker(), bench.worker()
    ticket = begin(bench, worker)
    worker.say(wire.Ask(2, "b", conversation="waits"))
    worker.die()
    assert bench.leases() == 1
    refused = other.ask(wire.Where(1, "waits"))
    assert (refused.kind, refused.status) == ("conversation-lost", 410)
    bench.report(ticket, "ended")
    assert bench.leases() == 0


def test_where_finds_it_running_and_ended_but_not_for_others(bench: Bench) -> None:
    worker, other = bench.worker(), bench.worker()
    ticket = begin(bench, worker, owner="alice")
    granted = other.ask(wire.Where(1, "c", "alice"))
    assert (granted.child, granted.ticket, granted.address) == (CHILD, ticket, "127.0.0.1:1")
    assert other.ask(wire.Where(2, "c", "bob")).status == 404
    assert other.ask(wire.Where(3, "c")).status == 404
    worker.say(wire.Release(1))
    assert bench.leases() == 1, "the follower keeps it"
    other.say(wire.Release(1))
    assert bench.leases() == 0
    assert other.ask(wire.Where(4, "c", "alice")).ticket == ticket


def test_where_waits_with_the_conversation(bench: Bench) -> None:
    worker, other = bench.worker(), bench.worker()
    worker.say(wire.Ask(1, "alias", conversation="c", progress=True))
    other.say(wire.Where(1, "c"), wire.Where(2, "c"))
    other.say(wire.Cancel(2))
    assert other.hear() == []
    bench.ready()
    (granted,) = other.hear()
    assert (granted.lease, granted.child) == (1, CHILD)


def test_where_hears_the_refusal_of_what_it_waits_for_and_so_does_who_comes_later(bench: Bench) -> None:
    worker, other = bench.worker(), bench.worker()
    worker.say(wire.Ask(1, "a", conversation="c"))
    other.say(wire.Where(1, "c"))
    bench.exit()
    refusals = [worker.hear()[-1], other.hear()[-1], other.ask(wire.Where(2, "c"))]
    assert {refused.kind for refused in refusals} == {"load-failed"}
    assert len({refused.message for refused in refusals}) == 1


def test_a_dead_instance_is_said_plainly(bench: Bench) -> None:
    worker = bench.worker()
    begin(bench, worker)
    begin(bench, worker, 2, "done")
    worker.say(wire.Release(2))
    bench.exit()
    worker.hear()
    for id in ("c", "done"):
        refused = worker.ask(wire.Where(3, id))
        assert (refused.kind, refused.status) == ("conversation-lost", 410)
        assert repr(id) in refused.message


def test_stop_ends_the_wait_for_a_load(bench: Bench) -> None:
    worker, other = bench.worker(), bench.worker()
    worker.say(wire.Ask(1, "a", conversation="c"))
    other.say(wire.Where(1, "c"))
    assert bench.worker().ask(wire.Stop(9, "c")) == wire.Stopped(9)
    assert worker.hear()[-1].kind == "conversation-stopped"
    assert other.hear()[-1].kind == "conversation-stopped"
    assert next(view.waiting for view in bench.driver.view().models) == 0
    assert other.ask(wire.Where(2, "c")).status == 404


def test_stop_reaches_the_instance_and_frees_the_lease(bench: Bench) -> None:
    worker = bench.worker()
    ticket = begin(bench, worker)
    worker.say(wire.Detach(1))
    assert worker.ask(wire.Stop(2, "c")) == wire.Stopped(2)
    assert bench.instances.stopped == [(CHILD, ticket)]
    assert bench.leases() == 0
    assert worker.ask(wire.Stop(3, "c")) == wire.Stopped(3)
    bench.report(ticket, "forgotten")


def test_a_new_request_takes_the_place_of_the_old(bench: Bench) -> None:
    worker = bench.worker()
    first = begin(bench, worker)
    worker.say(wire.Detach(1))
    second = begin(bench, worker, 2)
    assert second != first
    assert bench.instances.stopped == [(CHILD, first)]
    assert bench.leases() == 1
    worker.say(wire.Ask(3, "b", conversation="c"), wire.Ask(4, "b", conversation="c"))
    heard = [message for message in worker.hear() if isinstance(message, wire.Refused)]
    assert [(refused.lease, refused.kind) for refused in heard] == [(3, "conversation-replaced")]


def test_the_same_request_asks_again_when_its_instance_died(bench: Bench) -> None:
    worker = bench.worker()
    ticket = begin(bench, worker)
    worker.say(wire.Release(1, "died"), wire.Ask(2, "a", conversation="c", ticket=ticket, avoid=CHILD))
    bench.exit()
    assert bench.worker().ask(wire.Lookup(1, ["c"])).places[0].over is False
    bench.ready(2)
    granted = worker.hear()[-1]
    assert (granted.lease, granted.child, granted.ticket) == (2, 2, ticket)


def test_lookup_tells_where_each_is(bench: Bench) -> None:
    worker = bench.worker()
    ticket = begin(bench, worker, id="c::a")
    worker.say(wire.Ask(2, "b", conversation="d"))
    found = worker.ask(wire.Lookup(3, ["c", "d", "x"]))
    started = found.places[0].started_at
    assert found == wire.Found(
        3,
        [
            wire.Place("c::a", started, False, ticket, "127.0.0.1:1", "token-1"),
            wire.Place("d", found.places[1].started_at, False, ticket + 1),
        ],
    )


def test_forgotten_and_old_ones_are_gone(bench: Bench) -> None:
    worker = bench.worker()
    first = begin(bench, worker)
    second = begin(bench, worker, 2, "d")
    worker.say(wire.Release(1), wire.Release(2))
    bench.report(first, "forgotten")
    assert worker.ask(wire.Where(3, "c")).status == 404
    assert worker.ask(wire.Where(4, "d")).ticket == second
    bench.clock.now += 331
    bench.turn()
    assert worker.ask(wire.Where(5, "d")).status == 404


def test_one_owners_many_push_out_his_own_and_nobody_elses(bench: Bench) -> None:
    worker = bench.worker()
    theirs = begin(bench, worker, 1, "c", owner="bob")
    running = begin(bench, worker, 2, "runs", owner="alice")
    worker.say(wire.Release(1))
    tickets = []
    for number in range(OWNERS_MAX + 5):
        tickets.append(begin(bench, worker, 10 + number, f"c{number}", owner="alice"))
        worker.say(wire.Release(10 + number))
        bench.clock.now += 0.001
    assert bench.instances.stopped == [(CHILD, ticket) for ticket in tickets[:6]], "with the one that runs"
    assert worker.ask(wire.Where(3, "c", "bob")).ticket == theirs
    assert worker.ask(wire.Where(4, "runs", "alice")).ticket == running
    assert worker.ask(wire.Where(5, "c0", "alice")).status == 404
    assert worker.ask(wire.Where(6, "c6", "alice")).ticket == tickets[6]


def test_progress_reaches_those_who_want_it(bench: Bench) -> None:
    worker = bench.worker()
    worker.say(wire.Ask(1, "alias", progress=True), wire.Ask(2, "a"))
    worker.hear()
    bench.server.progressed(("a", "alias"), 0.25)
    bench.server.progressed(("b",), 0.5)
    assert worker.hear() == [wire.Progress(1, 0.25)]
    bench.ready()
    worker.hear()
    bench.server.progressed(("a", "alias"), 0.5)
    assert worker.hear() == []


def test_a_cancelled_conversation_is_forgotten(bench: Bench) -> None:
    worker = bench.worker()
    worker.say(wire.Ask(1, "a", conversation="c"), wire.Cancel(1))
    worker.hear()
    assert worker.ask(wire.Where(2, "c")).status == 404
    assert LeaseKey(1, 1) not in bench.driver._scheduler.state.places


@pytest.fixture
def charged(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What has been charged, and to whom."""
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(bench.server.conversations, "_charge", lambda *charge: seen.append(charge))
    return seen


def paid(charged: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [charge for charge in charged if charge[1]]


def test_what_goes_on_without_its_client_is_charged_once_at_its_end(
    bench: Bench, charged: list[tuple[str, int]]
) -> None:
    worker = bench.worker()
    ticket = begin(bench, worker, owner="key:a")
    worker.say(wire.Detach(1))
    bench.report(ticket, "ended", child=99, tokens=7)
    assert not paid(charged)
    bench.report(ticket, "ended", tokens=50)
    bench.report(ticket, "forgotten", tokens=50)
    assert paid(charged) == [("key:a", 50)]


def test_to_stop_it_shortly_before_its_end_is_no_way_around(
    bench: Bench, charged: list[tuple[str, int]]
) -> None:
    worker = bench.worker()
    ticket = begin(bench, worker, owner="key:a")
    worker.say(wire.Detach(1), wire.Stop(2, "c", "key:a"))
    bench.report(ticket, "forgotten", tokens=40)
    assert paid(charged) == [("key:a", 40)]


def test_an_end_that_crosses_its_clients_leave_is_charged(
    bench: Bench, charged: list[tuple[str, int]]
) -> None:
    worker = bench.worker()
    ticket = begin(bench, worker, owner="key:a")
    bench.report(ticket, "ended", tokens=30)
    worker.say(wire.Detach(1))
    bench.report(ticket, "forgotten")
    assert paid(charged) == [("key:a", 30)]


def test_what_its_client_has_seen_to_the_end_is_for_the_worker_to_count(
    bench: Bench, charged: list[tuple[str, int]]
) -> None:
    worker = bench.worker()
    ticket = begin(bench, worker, owner="key:a")
    bench.report(ticket, "ended", tokens=30)
    worker.say(wire.Release(1, tokens=30))
    bench.report(ticket, "forgotten")
    assert not paid(charged)


def test_what_is_lost_with_its_process_is_forgotten(bench: Bench, charged: list[tuple[str, int]]) -> None:
    worker = bench.worker()
    ticket = begin(bench, worker, owner="key:a")
    worker.say(wire.Detach(1))
    bench.exit()
    bench.report(ticket, "ended", tokens=30)
    assert not paid(charged)
