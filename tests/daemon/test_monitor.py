"""The monitor with real processes that speak the child pipe badly and well, and a recorder in the scheduler's place."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from llamad.clock import SystemClock
from llamad.config.settings import ModelSpec, Settings
from llamad.core.actions import AskExit, Kill, Sleep, Spawn, Terminate, Wake
from llamad.core.events import (
    ChildExited,
    ChildFailed,
    ChildNotSpawned,
    ChildProgressed,
    ChildReady,
    ChildSlept,
    Event,
    Placement,
)
from llamad.daemon.kernel import Kernel
from llamad.daemon.loop import Loop
from llamad.daemon.monitor import Monitor, checked_address, load_progress
from llamad.daemon.spawn import Commands, Spawner
from llamad.errors import ProtocolError
from llamad.wire.child import EXIT_OUT_OF_MEMORY, Conversation
from tests.daemon.parts import FailingKernel, children_left, open_fds, run_until

READY = 'cmd_child_to_router:state:{"state":"ready","payload":{"address":"127.0.0.1:1"}}'
LOADING = 'cmd_child_to_router:state:{"state":"loading","payload":{"stages":["text_model"],"current":"text_model","value":0.5}}'

ENDED = 'cmd_child_to_router:conversation:{"ticket":7,"state":"ended"}'


class Watching:
    """Writes down what a watcher is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def progressed(self, names: Collection[str], value: float) -> None:
        self.told.append((*names, value))

    def reported(self, child: int, report: Conversation) -> None:
        self.told.append((child, report.ticket, report.state))

    def gone(self, child: int, how: str) -> None:
        self.told.append((child, how))


class Names:
    """A model that calls `gpu` what the books call `CUDA0`."""

    def to_books(self, amounts: Mapping[str, int], environment: Mapping[str, str]) -> dict[str, int]:
        return {"CUDA0" if name == "gpu" else name: amount for name, amount in amounts.items()}

    def from_books(self, amounts: Mapping[str, int], environment: Mapping[str, str]) -> dict[str, int]:
        return {"gpu" if name == "CUDA0" else name: amount for name, amount in amounts.items()}


class Bench:
    """A monitor of shell scripts: the script of a model is its `path`."""

    def __init__(self, scripts: dict[str, str], kernel: Kernel | None = None, **settings: Any) -> None:
        self.loop = Loop(SystemClock())
        self.events: list[Event] = []
        self.specs = {
            name: ModelSpec(name, "/m.gguf", env={"SCRIPT": text}) for name, text in scripts.items()
        }
        command = ("/bin/sh", "-c", 'read start; echo "$start" >&2; eval "$SCRIPT"')
        self.monitor = Monitor(
            Spawner(self.loop, kernel or Kernel(), {"PATH": "/usr/bin:/bin"}),
            Commands(instance=command),
            Settings(runtime_dir="/run/x", state_dir="/x", **settings),
            self.specs.get,
            self.events.append,
            Names(),
        )

    def run_until(self, kind: type) -> Any:
        run_until(self.loop, lambda: any(isinstance(event, kind) for event in self.events))
        return next(event for event in self.events if isinstance(event, kind))

    def spawn(self, model: str, child: int = 1) -> None:
        self.monitor.spawn(Spawn(child, model))


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(
        {
            "good": f"echo '{LOADING}'; echo '{READY}'; read line; echo \"$line\" >&2; exit 0",
            "sleeper": f"echo '{READY}'; sleep 60",
            "talker": f"echo '{LOADING}'; echo '{READY}'; echo '{ENDED}'; read line; echo \"$line\" >&2; exit 3",
            "broken": "echo 'cmd_child_to_router:state:{broken'; sleep 60",
            "twice": f"echo '{READY}'; echo '{LOADING}'; sleep 60",
            "elsewhere": f"echo '{READY.replace('127.0.0.1', '192.0.2.1')}'; sleep 60",
            "failing": (
                'echo \'cmd_child_to_router:state:{"state":"failed","payload":{"kind":"k","message":"m"}}\'; '
                "echo last words >&2; exit 1"
            ),
        }
    )
    yield bench
    bench.monitor.kill_all()
    run_until(bench.loop, lambda: not bench.monitor.instances())
    assert not children_left()
    bench.loop.close()


def test_a_whole_life(bench: Bench) -> None:
    bench.spawn("good")
    assert bench.run_until(ChildProgressed) == ChildProgressed(1, 0.5)
    assert bench.run_until(ChildReady) == ChildReady(1)
    instance = bench.monitor.instance(1)
    assert instance is not None
    assert instance.address == "127.0.0.1:1"
    bench.monitor.ask_exit(AskExit(1))
    exited = bench.run_until(ChildExited)
    assert (exited.exit_code, exited.signal) == (0, None)
    assert "cmd_router_to_child:exit" in exited.tail
    assert bench.monitor.instance(1) is None


def test_watchers_hear_of_loads_conversations_and_ends(bench: Bench) -> None:
    watching = Watching()
    bench.monitor.tell(watching)
    bench.spawn("talker")
    bench.run_until(ChildReady)
    assert bench.monitor.reach(1)[0] == "127.0.0.1:1"
    bench.monitor.stop_conversation(1, 9)
    assert 'cmd_router_to_child:stop:{"ticket":9}' in bench.run_until(ChildExited).tail
    run_until(bench.loop, lambda: len(watching.told) == 3)
    assert watching.told == [("talker", 0.5), (1, 7, "ended"), (1, "exit status 3")]
    assert bench.monitor.reach(1) == ("", "")
    bench.monitor.stop_conversation(1, 9)


def test_role_and_token_come_by_the_pipe(bench: Bench) -> None:
    bench.spawn("good")
    bench.run_until(ChildReady)
    instance = bench.monitor.instance(1)
    assert instance is not None
    line = bench.monitor.log_ring("good").last(1)[0].value
    assert line.startswith('cmd_router_to_child:start:{"role":"instance"')
    assert '"reserved"' not in line
    assert instance.token in line
    assert len(instance.token) >= 32


def test_the_instance_can_still_be_looked_up_while_the_scheduler_hears_of_its_end(bench: Bench) -> None:
    """A grant that was decided before the end is still carried out after it."""
    seen: list[bool] = []
    post = bench.events.append

    def note(event: Event) -> None:
        seen.append(bench.monitor.instance(1) is not None)
        post(event)

    bench.monitor._post = note
    bench.spawn("sleeper")
    bench.monitor.kill(Kill(1))
    bench.run_until(ChildExited)
    assert seen[-1] is True


@pytest.mark.parametrize(("action", "number"), [(Terminate(1), 15), (Kill(1), 9)], ids=["terminate", "kill"])
def test_the_ways_to_end_one(bench: Bench, action: Any, number: int) -> None:
    bench.spawn("sleeper")
    bench.run_until(ChildReady)
    (bench.monitor.terminate if isinstance(action, Terminate) else bench.monitor.kill)(action)
    assert bench.run_until(ChildExited).signal == number


@pytest.mark.parametrize("model", ["broken", "twice", "elsewhere"])
def test_a_protocol_fault_is_told_once_and_ends_the_child(bench: Bench, model: str) -> None:
    bench.spawn(model)
    failed = bench.run_until(ChildFailed)
    assert failed.kind == "protocol"
    assert failed.message.startswith("cannot ")
    assert bench.run_until(ChildExited).signal == 9
    assert sum(isinstance(event, ChildFailed) for event in bench.events) == 1


def test_a_failure_keeps_its_kind_and_the_end_of_the_log(bench: Bench) -> None:
    bench.spawn("failing")
    assert bench.run_until(ChildFailed) == ChildFailed(1, "k", "m")
    exited = bench.run_until(ChildExited)
    assert exited.exit_code == 1
    assert exited.tail.endswith("last words")


def test_orders_for_a_child_that_is_gone_are_ignored(bench: Bench) -> None:
    bench.monitor.ask_exit(AskExit(99))
    bench.monitor.terminate(Terminate(99))
    bench.monitor.kill(Kill(99))
    assert bench.events == []


def test_what_is_not_configured_any_more_is_not_spawned(bench: Bench) -> None:
    bench.spawn("unknown", child=5)
    assert isinstance(bench.events[0], ChildNotSpawned)
    assert bench.events[0].child == 5


def test_another_engine_is_refused_in_words(bench: Bench) -> None:
    bench.specs["other"] = ModelSpec("other", "/m.gguf", engine="llama-server")
    bench.spawn("other")
    assert "llama-server" in bench.events[0].message  # type: ignore[union-attr]


@pytest.mark.parametrize("fail_at", range(1, 9))
def test_a_failed_spawn_is_an_event_and_leaves_nothing(fail_at: int) -> None:
    before = open_fds()
    bench = Bench({"good": "exit 0"}, FailingKernel(fail_at))
    bench.spawn("good", child=3)
    assert isinstance(bench.events[0], ChildNotSpawned)
    assert bench.monitor.instances() == []
    bench.loop.close()
    assert open_fds() == before
    assert not children_left()


def test_a_socket_of_its_own_where_that_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "instance-1.sock"
    report = READY.replace("127.0.0.1:1", f"unix:{path}")
    bench = Bench({"good": f"touch {path}; echo '{report}'; read line"}, instance_transport="unix")
    bench.monitor._settings = Settings(runtime_dir=str(tmp_path), state_dir="/x", instance_transport="unix")
    bench.spawn("good")
    bench.run_until(ChildReady)
    instance = bench.monitor.instance(1)
    assert instance is not None
    assert instance.address == f"unix:{path}"
    bench.monitor.ask_exit(AskExit(1))
    bench.run_until(ChildExited)
    assert not path.exists()
    bench.loop.close()


@pytest.mark.parametrize(
    ("payload", "progress"),
    [
        ({"stages": ["text_model"], "current": "text_model", "value": 0.25}, 0.25),
        ({"stages": ["text_model", "mmproj"], "current": "mmproj", "value": 0.5}, 0.75),
        ({"value": 0.5}, 0.5),
        ({}, 0.0),
        ({"stages": "odd", "value": 1}, 0.0),
        ({"stages": [], "current": "x", "value": 7}, 1.0),
        ({"stages": ["a"], "current": "unknown", "value": -3}, 0.0),
    ],
)
def test_progress_over_all_stages(payload: dict[str, Any], progress: float) -> None:
    assert load_progress(payload) == progress


@pytest.mark.parametrize(
    ("address", "socket_path"),
    [
        (None, ""),
        (5, ""),
        ("10.0.0.1:80", ""),
        ("127.0.0.1.example.org:80", ""),
        ("127.0.0.1:80", "/run/x.sock"),
        ("unix:/other", "/run/x.sock"),
    ],
)
def test_addresses_that_are_not_ours(address: Any, socket_path: str) -> None:
    with pytest.raises(ProtocolError, match="cannot use"):
        checked_address({"address": address}, socket_path)


def test_python_is_the_child_in_production() -> None:
    assert Commands().instance == (sys.executable, "-P", "-m", "llamad", "child")


def report(state: str, **payload: Any) -> str:
    return f"cmd_child_to_router:state:{json.dumps({'state': state, 'payload': payload})}"


def test_sleep_and_wake_and_what_it_holds_by_the_books_names() -> None:
    ready = report("ready", address="127.0.0.1:1", n_slots=4, bytes={"host": 5, "gpu": {"kv": 1, "total": 6}})
    slept = report("sleeping", bytes={"host": 2})
    awake = report("ready", address="127.0.0.1:1", bytes="nonsense", n_slots=-1)
    bench = Bench(
        {
            "m": f"echo '{ready}'; read a; echo $a >&2; echo '{slept}'; read b; echo $b >&2; echo '{awake}'; read c"
        }
    )
    bench.spawn("m")
    assert bench.run_until(ChildReady) == ChildReady(1, {"host": 5, "CUDA0": 6}, 4)
    bench.monitor.sleep(Sleep(1))
    assert bench.run_until(ChildSlept) == ChildSlept(1, {"host": 2})
    bench.events.clear()
    bench.monitor.wake(Wake(1))
    assert bench.run_until(ChildReady) == ChildReady(1, None, 0)
    bench.monitor.ask_exit(AskExit(1))
    tail = bench.run_until(ChildExited).tail.splitlines()
    assert tail[-2:] == ["cmd_router_to_child:sleep", "cmd_router_to_child:wake"]
    bench.monitor.sleep(Sleep(1))
    bench.loop.close()


def test_where_it_was_placed_is_told_by_the_models_names() -> None:
    bench = Bench({"good": "exit 0"})
    way = Placement(("CUDA0", "RPC0"), {"CUDA0": 1}, {"CUDA0": 6}, (2.0, 1.0))
    bench.monitor.spawn(Spawn(1, "good", {"CUDA0": 6}, {"CUDA0": 6}, way))
    instance = bench.monitor.instance(1)
    assert instance is not None
    assert instance.placement == Placement(("gpu", "RPC0"), {"gpu": 1}, {"gpu": 6}, (2.0, 1.0))
    bench.run_until(ChildExited)
    start = json.loads(bench.monitor.log_ring("good").last(1)[0].value.partition("start:")[2])
    assert start["body"]["devices"] == ["gpu", "RPC0"]
    assert start["body"]["tensor_split"] == [2.0, 1.0]
    bench.loop.close()


def test_what_was_reserved_is_told_by_the_models_names() -> None:
    bench = Bench({"m": "exit 0"})
    bench.monitor.spawn(Spawn(1, "m", {"host": 5, "CUDA0": 6}, {"host": 7, "CUDA0": 8}))
    bench.run_until(ChildExited)
    start = json.loads(bench.monitor.log_ring("m").last(1)[0].value.partition("start:")[2])
    assert start["body"]["reserved"] == {"host": 5, "gpu": 6}
    assert start["body"]["maximum"] == {"host": 7, "gpu": 8}
    bench.loop.close()


def test_an_exit_that_says_out_of_memory_by_its_status_alone() -> None:
    bench = Bench(
        {
            "m": f"exit {EXIT_OUT_OF_MEMORY}",
            "told": f"echo '{report('failed', kind='k', message='m')}'; exit {EXIT_OUT_OF_MEMORY}",
        }
    )
    bench.spawn("m")
    bench.run_until(ChildExited)
    assert [event.kind for event in bench.events if isinstance(event, ChildFailed)] == ["out-of-memory"]
    bench.events.clear()
    bench.spawn("told", 2)
    bench.run_until(ChildExited)
    assert [event.kind for event in bench.events if isinstance(event, ChildFailed)] == ["k"], (
        "its own last word"
    )
    bench.loop.close()
