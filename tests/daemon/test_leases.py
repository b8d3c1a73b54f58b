"""The lease socket: messages to events and actions to messages, and workers that misbehave."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from llamad.config.settings import ApiKey, ModelSpec, RequestRules, Settings
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
from llamad.daemon import leases
from llamad.daemon.clients import Clients
from llamad.daemon.kernel import Kernel
from llamad.daemon.leases import LeaseServer
from llamad.daemon.loop import Loop
from llamad.wire import lease as wire
from llamad.wire.policy import Rules
from tests.daemon.parts import HandClock


class OneInstance:
    """Knows child 7 and no other."""

    def __init__(self) -> None:
        self.stopped: list[tuple[int, int]] = []

    def reach(self, child: int) -> tuple[str, str]:
        return ("127.0.0.1:4711", "secret") if child == 7 else ("", "")

    def stop_conversation(self, child: int, ticket: int) -> None:
        self.stopped.append((child, ticket))


class Bench:
    def __init__(self, directory: Any) -> None:
        self.loop = Loop(HandClock())
        self.events: list[Event] = []
        self.changes = 0
        self.clients = Clients(self.loop.now)
        self.specs: dict[str, ModelSpec] = {}
        kernel = Kernel()
        self.server = LeaseServer(
            self.loop,
            kernel,
            kernel.listen_unix(str(directory / "lease.sock"), 0o600, 10),
            OneInstance(),
            self.events.append,
            self.changed,
            self.clients,
            self.specs.get,
        )

    def changed(self) -> None:
        self.changes += 1

    def worker(self, *messages: wire.Message) -> Worker:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.server.connected(theirs)
        worker = Worker(self, ours)
        worker.say(*messages)
        return worker

    def turn(self) -> None:
        for _ in range(4):
            self.loop.run_once(0)


class Worker:
    def __init__(self, bench: Bench, connection: socket.socket) -> None:
        self.bench = bench
        self.connection = connection
        self.connection.setblocking(False)
        self.protocol = wire.WorkerSide()
        self.policies: list[wire.Policy] = []

    def say(self, *messages: wire.Message) -> None:
        self.connection.sendall(b"".join(map(wire.encode, messages)))
        self.bench.turn()

    def hear(self) -> list[wire.FromSupervisor]:
        """What has come since, without policies, which are kept apart."""
        self.bench.turn()
        try:
            heard = self.protocol.feed(self.connection.recv(1 << 20))
        except BlockingIOError:
            return []
        self.policies += [message for message in heard if isinstance(message, wire.Policy)]
        return [message for message in heard if not isinstance(message, wire.Policy)]

    def dropped(self) -> bool:
        self.bench.turn()
        try:
            return self.connection.recv(1 << 20) == b""
        except BlockingIOError:
            return False


@pytest.fixture
def bench(tmp_path: Any) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.server.close()
    bench.loop.close()


def test_messages_become_events(bench: Bench) -> None:
    bench.worker(
        wire.Hello(100, [wire.Held(9, 7, "m")]),
        wire.Ask(1, "m", autoload=False, load=True, avoid=3),
        wire.Ask(2, "n"),
        wire.Cancel(2),
        wire.Release(1),
    )
    assert bench.events == [
        LeaseAnnounced(LeaseKey(1, 9), 7),
        LeaseAsked(LeaseKey(1, 1), "m", False, True, 3),
        LeaseAsked(LeaseKey(1, 2), "n"),
        LeaseCancelled(LeaseKey(1, 2)),
        LeaseReleased(LeaseKey(1, 1)),
    ]


def test_actions_become_messages_for_the_right_worker(bench: Bench) -> None:
    first, second = bench.worker(wire.Hello(100)), bench.worker(wire.Hello(101))
    second.say(wire.Ask(1, "m"), wire.Ask(2, "m"))
    bench.server.queue(QueueLease(LeaseKey(2, 1), 3))
    bench.server.grant(GrantLease(LeaseKey(2, 1), 7, "m"))
    bench.server.refuse(RefuseLease(LeaseKey(2, 2), "no-room", 503, "cannot load", 5.0, {"need_bytes": 1}))
    bench.server.end(EndLease(LeaseKey(2, 1), "instance-died", "cannot go on"))
    assert second.hear() == [
        wire.Queued(1, 3),
        wire.Granted(1, 7, "m", "127.0.0.1:4711", "secret"),
        wire.Refused(2, "no-room", 503, "cannot load", 5.0, {"need_bytes": 1}),
        wire.Ended(1, "instance-died", "cannot go on"),
    ]
    assert first.hear() == []


def test_a_worker_that_goes_is_lost_once_and_its_number_is_not_used_again(bench: Bench) -> None:
    worker = bench.worker(wire.Hello(100))
    assert bench.server.worker_pids() == [100]
    worker.connection.close()
    bench.turn()
    assert bench.events == [WorkerLost(1)]
    assert bench.server.worker_pids() == []
    assert bench.changes == 2
    bench.worker(wire.Hello(101), wire.Ask(1, "m"))
    assert bench.events[-1] == LeaseAsked(LeaseKey(2, 1), "m")


@pytest.mark.parametrize(
    "messages",
    [
        (wire.Ask(1, "m"),),
        (wire.Hello(1), wire.Hello(1)),
        (wire.Hello(1), wire.Ask(1, "m"), wire.Ask(1, "m")),
    ],
)
def test_who_breaks_the_protocol_is_dropped(bench: Bench, messages: tuple[wire.Message, ...]) -> None:
    worker = bench.worker(*messages)
    assert worker.dropped()
    assert bench.events[-1] == WorkerLost(1)


def test_what_a_dropped_worker_said_after_its_fault_does_not_count(bench: Bench) -> None:
    bench.worker(wire.Hello(1), wire.Ask(1, "m"), wire.Ask(1, "m"), wire.Ask(2, "m"))
    assert [event for event in bench.events if isinstance(event, LeaseAsked)] == [
        LeaseAsked(LeaseKey(1, 1), "m")
    ]


def test_leases_of_a_worker_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LEASES_PER_WORKER_MAX", 2)
    worker = bench.worker(wire.Hello(1), wire.Ask(1, "m"), wire.Ask(2, "m"), wire.Ask(3, "m"))
    refused = worker.hear()[0]
    assert isinstance(refused, wire.Refused)
    assert (refused.lease, refused.status) == (3, 429)
    worker.say(wire.Release(1), wire.Ask(4, "m"))
    assert bench.events[-1] == LeaseAsked(LeaseKey(1, 4), "m")


def test_a_worker_that_does_not_read_is_dropped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "UNSENT_BYTES_MAX", 100_000)
    bench.worker(wire.Hello(1))
    for _ in range(200):
        bench.server.refuse(RefuseLease(LeaseKey(1, 1), "k", 503, "x" * 10_000))
        bench.loop.run_once(0)
    assert bench.events == [WorkerLost(1)]


def test_answers_to_a_worker_that_is_gone_fall_on_the_floor(bench: Bench) -> None:
    bench.server.grant(GrantLease(LeaseKey(99, 1), 7, "m"))
    bench.server.end(EndLease(LeaseKey(99, 1), "k", "m"))


@pytest.mark.parametrize("cut", range(1, len(wire.encode(wire.Hello(1)) + wire.encode(wire.Ask(1, "m")))))
def test_split_at_any_byte(bench: Bench, cut: int) -> None:
    worker = bench.worker()
    data = wire.encode(wire.Hello(1)) + wire.encode(wire.Ask(1, "m"))
    worker.connection.sendall(data[:cut])
    bench.turn()
    worker.connection.sendall(data[cut:])
    bench.turn()
    assert bench.events == [LeaseAsked(LeaseKey(1, 1), "m")]


def test_a_policy_follows_each_hello_and_each_change(bench: Bench) -> None:
    first = bench.worker(wire.Hello(1))
    silent = bench.worker()
    assert bench.clients.configure(Settings("/run", "/state"))
    bench.server.announce_policy()
    second = bench.worker(wire.Hello(2))
    for worker in (first, silent, second):
        worker.hear()
    assert first.policies == [wire.Policy(closed=True), wire.Policy()]
    assert silent.policies == []
    assert second.policies == [wire.Policy()]


# ---- keys

LIMITED = ApiKey("d" * 64, "app", models=("chat", "v"), max_concurrent=2, tokens_per_minute=60)
CHAT = ModelSpec("chat", "/x", aliases=("c",), variants={"v": RequestRules(force={"n": "1"})})
OTHER = ModelSpec("other", "/y", variants={"w": RequestRules()})


@pytest.fixture
def closed(bench: Bench) -> Bench:
    bench.clients.configure(Settings("/run", "/state", keys=(LIMITED, ApiKey("e" * 64, "any"))))
    bench.specs |= {"chat": CHAT, "c": CHAT, "v": CHAT, "other": OTHER, "w": OTHER}
    return bench


def asks(bench: Bench) -> list[int]:
    return [event.key.lease for event in bench.events if isinstance(event, LeaseAsked)]


def refusals(worker: Worker) -> dict[int, tuple[str, int]]:
    heard = [message for message in worker.hear() if isinstance(message, wire.Refused)]
    return {message.lease: (message.kind, message.status) for message in heard}


@pytest.mark.parametrize(
    ("model", "client", "refusal"),
    [
        ("chat", "key:app", None),
        ("c", "key:app", None),
        ("v", "key:app", None),
        ("other", "key:app", ("model-not-allowed", 403)),
        ("nowhere", "key:app", ("model-not-allowed", 403)),
        ("other", "key:any", None),
        ("nowhere", "key:any", None),
        ("chat", "key:gone", ("key-unknown", 401)),
        ("chat", "10.0.0.1", None),
    ],
)
def test_keys_are_for_models(closed: Bench, model: str, client: str, refusal: tuple[str, int] | None) -> None:
    worker = closed.worker(wire.Hello(1), wire.Ask(1, model, client=client))
    assert refusals(worker).get(1) == refusal
    assert asks(closed) == ([] if refusal else [1])
    if refusal:
        worker.say(wire.Ask(1, "chat"))
        assert asks(closed) == [1], "a refused number is free again"


def test_reads_are_for_models_too_and_count_for_nothing(closed: Bench) -> None:
    reads = [wire.Ask(number, "chat", load=False, client="key:app") for number in range(1, 9)]
    worker = closed.worker(wire.Hello(1), *reads, wire.Ask(9, "other", load=False, client="key:app"))
    assert refusals(worker) == {9: ("model-not-allowed", 403)}


def test_requests_at_once_are_counted_over_all_workers_and_all_ends(closed: Bench) -> None:
    first = closed.worker(wire.Hello(1), wire.Ask(1, "chat", client="key:app"))
    second = closed.worker(wire.Hello(2), wire.Ask(1, "chat", client="key:app"))
    first.say(wire.Ask(2, "chat", client="key:app"), wire.Ask(3, "chat", client="key:any"))
    assert refusals(first) == {2: ("key-concurrency", 429)}
    first.say(wire.Release(1), wire.Ask(4, "chat", client="key:app"))
    first.say(wire.Cancel(4), wire.Ask(5, "chat", client="key:app"))
    closed.server.refuse(RefuseLease(LeaseKey(1, 5), "no-room", 503, "cannot"))
    first.say(wire.Ask(6, "chat", client="key:app"))
    assert refusals(first) == {5: ("no-room", 503)}
    second.connection.close()
    closed.turn()
    first.say(wire.Ask(7, "chat", client="key:app"), wire.Ask(8, "chat", client="key:app"))
    assert refusals(first) == {8: ("key-concurrency", 429)}


def test_tokens_are_charged_at_the_end(closed: Bench) -> None:
    worker = closed.worker(wire.Hello(1), wire.Ask(1, "chat", client="key:app"))
    worker.say(wire.Release(1, tokens=90), wire.Ask(2, "chat", client="key:app"))
    [refused] = worker.hear()
    assert isinstance(refused, wire.Refused)
    assert (refused.kind, refused.retry_after_s) == ("key-tokens", 31.0)


def test_a_conversation_without_its_client_still_counts(closed: Bench) -> None:
    ask = wire.Ask(1, "chat", client="key:app", conversation="a", owner="key:app")
    worker = closed.worker(wire.Hello(1), ask, wire.Ask(2, "chat", client="key:app"))
    closed.server.grant(GrantLease(LeaseKey(1, 1), 7, "chat"))
    worker.say(wire.Detach(1), wire.Ask(3, "chat", client="key:app"))
    assert refusals(worker) == {3: ("key-concurrency", 429)}
    [moved] = [event for event in closed.events if isinstance(event, LeaseDetached)]
    closed.server.end(EndLease(moved.to, "instance-died", "cannot go on"))
    worker.say(wire.Ask(4, "chat", client="key:app"))
    assert refusals(worker) == {}


def test_rules_go_with_the_name_that_was_asked_for(closed: Bench) -> None:
    worker = closed.worker(wire.Hello(1), wire.Ask(1, "chat"), wire.Ask(2, "v"))
    for lease in (1, 2):
        closed.server.grant(GrantLease(LeaseKey(1, lease), 7, "chat"))
    granted = [message for message in worker.hear() if isinstance(message, wire.Granted)]
    assert [message.rules for message in granted] == [None, Rules(force={"n": 1})]


def keeps(worker: Worker) -> dict[int, bool]:
    return {message.lease: message.keep for message in worker.hear() if isinstance(message, wire.Granted)}


def test_a_lease_may_be_kept_while_nobody_waits(closed: Bench) -> None:
    worker = closed.worker(wire.Hello(1), wire.Ask(1, "chat"))
    closed.server.grant(GrantLease(LeaseKey(1, 1), 7, "chat"))
    assert keeps(worker) == {1: True}
    worker.say(wire.Ask(2, "chat"), wire.Ask(3, "other"))
    closed.server.grant(GrantLease(LeaseKey(1, 2), 7, "chat"))
    assert keeps(worker) == {2: False}, "the third waits"
    worker.say(wire.Cancel(3), wire.Ask(4, "chat"))
    closed.server.grant(GrantLease(LeaseKey(1, 4), 7, "chat"))
    assert keeps(worker) == {4: True}


@pytest.mark.parametrize(
    "fields",
    [{"client": "key:app"}, {"load": False}, {"conversation": "c"}],
    ids=["limits", "a read", "a conversation"],
)
def test_a_request_that_is_counted_keeps_nothing(closed: Bench, fields: dict[str, Any]) -> None:
    worker = closed.worker(wire.Hello(1), wire.Ask(1, "chat", **fields))
    closed.server.grant(GrantLease(LeaseKey(1, 1), 7, "chat"))
    assert keeps(worker) == {1: False}


def test_who_waits_calls_back_what_is_kept_once(closed: Bench) -> None:
    keeper, other = closed.worker(wire.Hello(1), wire.Ask(1, "chat")), closed.worker(wire.Hello(2))
    closed.server.grant(GrantLease(LeaseKey(1, 1), 7, "chat"))
    assert keeps(keeper) == {1: True}
    other.say(wire.Ask(1, "other"))
    closed.server.queue(QueueLease(LeaseKey(2, 1), 1))
    closed.server.queue(QueueLease(LeaseKey(2, 1), 2))
    assert keeper.hear() == [wire.Recall()]
    assert other.hear() == [wire.Queued(1, 1), wire.Queued(1, 2)]


def test_a_new_policy_calls_back_what_is_kept(closed: Bench) -> None:
    worker = closed.worker(wire.Hello(1), wire.Ask(1, "chat"))
    closed.server.grant(GrantLease(LeaseKey(1, 1), 7, "chat"))
    assert keeps(worker) == {1: True}
    closed.server.announce_policy()
    assert worker.hear() == [wire.Recall()]


@pytest.mark.parametrize("end", ["release", "cancel", "refuse", "loss"])
def test_whoever_waited_and_is_gone_stands_in_nobodys_way(closed: Bench, end: str) -> None:
    waiter = closed.worker(wire.Hello(1), wire.Ask(1, "other"))
    match end:
        case "release":
            closed.server.grant(GrantLease(LeaseKey(1, 1), 7, "other"))
            waiter.say(wire.Release(1))
        case "cancel":
            waiter.say(wire.Cancel(1))
        case "refuse":
            closed.server.refuse(RefuseLease(LeaseKey(1, 1), "no-room", 503, "cannot"))
        case "loss":
            waiter.connection.close()
            closed.turn()
    worker = closed.worker(wire.Hello(2), wire.Ask(1, "chat"))
    closed.server.grant(GrantLease(LeaseKey(2, 1), 7, "chat"))
    assert keeps(worker) == {1: True}
