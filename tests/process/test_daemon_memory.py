"""The books of memory in a running daemon, over fake instances that hold what they say they hold."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from tests.conftest import wait_until
from tests.process.daemon_kit import Daemon, running

MIB = 1 << 20
DEVICE = "device=FAKE:1000"
ONE_OF_TWO = dict.fromkeys(("a", "b"), f"takes=host:1,FAKE:600 {DEVICE}")


def books(daemon: Daemon, device: str = "FAKE") -> dict[str, Any]:
    return next(found for found in daemon.get("/status")["devices"] if found["name"] == device)


def loads(daemon: Daemon, model: str) -> int:
    """How often it was started, by the metrics page."""
    line = next(
        text
        for text in daemon.get("/metrics").splitlines()
        if text.startswith(f'llamad_model_loads_total{{model="{model}"}}')
    )
    return int(float(line.split()[-1]))


@contextmanager
def sampled(daemon: Daemon, device: str = "FAKE") -> Iterator[list[dict[str, Any]]]:
    """The books of a device, again and again, while something goes on."""
    samples: list[dict[str, Any]] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.02):
            samples.extend(found for found in daemon.get("/status")["devices"] if found["name"] == device)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join(10)


def within_budget(samples: list[dict[str, Any]]) -> bool:
    return all(s["held_bytes"] <= s["total_bytes"] - s["margin_bytes"] for s in samples)


def test_room_for_one_of_two_serves_everybody_and_is_never_promised_twice() -> None:
    with running(ONE_OF_TWO, "--models-memory-margin", "200") as daemon:
        daemon.ask("a")
        with sampled(daemon) as samples, ThreadPoolExecutor(8) as pool:
            models = [random.choice("ab") for _ in range(60)]
            answers = list(pool.map(lambda model: (model, *daemon.ask(model)), models))
        assert all((status, answer["model"]) == (200, model) for model, status, answer in answers), answers
        assert samples
        assert within_budget(samples)
        assert max(sample["held_bytes"] for sample in samples) == 600 * MIB
        held = [m for m in "ab" if daemon.model(m)["llamad"]["memory"]]
        assert len(held) == 1, "there is room for one"


def test_the_host_is_a_device_too() -> None:
    """Its total is real, so the margin is what makes room for one."""
    with running({"probe": "takes=host:1"}, "--models-memory-margin", "0") as daemon:
        daemon.ask("probe")
        first = books(daemon, "host")
    assert first["total_bytes"] <= psutil.virtual_memory().total
    assert 0 < first["external_bytes"] < first["total_bytes"]
    each_mib = 300
    margin_mib = (first["total_bytes"] - first["external_bytes"]) // MIB - each_mib * 2 + 150
    models = dict.fromkeys(("a", "b"), f"takes=host:{each_mib}")
    with running(models, "--models-memory-margin", str(margin_mib)) as daemon:
        for model in "abab":
            assert daemon.ask(model)[0] == 200
        assert loads(daemon, "a") == loads(daemon, "b") == 2
        assert books(daemon, "host")["held_bytes"] == each_mib * MIB


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    with running({"big": f"takes=FAKE:900 {DEVICE}"}, "--models-memory-margin", "200") as daemon:
        status, answer = daemon.ask("big")
        assert status == 503
        error = answer["error"]
        assert error["kind"] == "does-not-fit"
        assert "900 MiB needed on FAKE, which has 1000 MiB, 200 MiB of them kept free" in error["message"]
        assert daemon.get("/plan/big")["outcome"] == "refused"
        assert next(d["kind"] for d in daemon.get("/why/big")["decisions"]) == "refuse"


def test_a_measured_use_that_is_smaller_lets_both_stay() -> None:
    models = dict.fromkeys(("a", "b"), f"takes=FAKE:600 really=FAKE:400 {DEVICE}")
    with running(models, "--models-memory-margin", "0") as daemon:
        assert [daemon.ask(model)[0] for model in "ab"] == [200, 200]
        assert books(daemon)["held_bytes"] == 800 * MIB
        assert daemon.value("a") == daemon.value("b") == "loaded"


def test_what_is_reserved_between_the_least_and_the_most_is_told_to_the_instance() -> None:
    models = {"a": f"takes=FAKE:600 {DEVICE}", "b": f"least=FAKE:100 takes=FAKE:900 {DEVICE}"}
    with running(models, "--models-memory-margin", "50") as daemon:
        daemon.ask("a")
        daemon.ask("b")
        reserved = [d["reserved"] for d in daemon.get("/why/b")["decisions"] if d["kind"] == "load"]
        assert reserved == [{"FAKE": 350 * MIB}]


def test_a_model_that_cannot_be_measured_loads_all_the_same() -> None:
    with running({"a": f"unmeasurable takes=FAKE:300 {DEVICE}"}, "--models-memory-margin", "0") as daemon:
        assert daemon.ask("a")[0] == 200
        assert "measure-failed" in [d["kind"] for d in daemon.get("/why/a")["decisions"]]


def test_needs_are_kept_across_restarts() -> None:
    with running(ONE_OF_TWO, "--models-memory-margin", "0") as daemon:
        daemon.ask("a")
        state = daemon.directory / "state"
        assert (state / "needs.json").exists()
        kept = (state / "needs.json").read_bytes()
        daemon.stop()
        again = Daemon(daemon.directory, ONE_OF_TWO, "--models-memory-margin", "0").wait_ready()
        try:
            assert again.ask("a")[0] == 200
            assert books(again)["held_bytes"] == 600 * MIB, "the device is known from what was kept, too"
            assert (state / "needs.json").read_bytes() == kept
        finally:
            again.stop()


def test_asleep_it_holds_what_it_says_and_wakes_when_there_is_room() -> None:
    models = {
        "sleeper": f"takes=FAKE:600 asleep=FAKE:50 {DEVICE}|sleep-idle-seconds = 0.3",
        "other": f"takes=FAKE:700 {DEVICE}",
    }
    with running(models, "--models-memory-margin", "0") as daemon:
        pid = daemon.ask("sleeper")[1]["pid"]
        wait_until(lambda: books(daemon)["held_bytes"] == 50 * MIB)
        assert daemon.value("sleeper") == "sleeping"
        assert daemon.get("/plan/sleeper")["message"] == "it wakes up"
        daemon.ask("other")
        assert books(daemon)["held_bytes"] == 750 * MIB
        # An answer is there a moment before its lease is given back.
        wait_until(lambda: daemon.get("/plan/sleeper")["evictions"] == ["other"])
        assert daemon.ask("sleeper")[1]["pid"] == pid, "the process stayed"
        assert daemon.value("other") == "unloaded"


def test_idle_processes_end_and_reading_does_not_keep_them() -> None:
    with running({"a": "|unload-idle-seconds = 0.5"}) as daemon:
        daemon.ask("a")

        def polled() -> bool:
            daemon.get("/models")
            daemon.get("/metrics")
            daemon.get("/why/a")
            return daemon.value("a") == "unloaded"

        wait_until(polled, within_s=5)
        assert "not used for" in daemon.model("a")["llamad"]["reason"]


def test_out_of_memory_makes_room_once_and_then_says_why(tmp_path: Any) -> None:
    models = {
        "warm": f"takes=FAKE:100 {DEVICE}",
        "hungry": f"takes=FAKE:100 {DEVICE} oom|env.TMPDIR = {tmp_path}",
    }
    with running(models, "--models-memory-margin", "0") as daemon:
        daemon.ask("warm")
        status, answer = daemon.ask("hungry")
        assert (status, answer["error"]["kind"]) == (503, "out-of-memory")
        assert daemon.value("warm") == "unloaded", "it left for the second try"
        failure = daemon.get("/why/hungry")["failure"]
        assert (failure["kind"], failure["count"]) == ("out-of-memory", 1)
        assert "SIGKILL" in failure["message"]
        kinds = [d["kind"] for d in daemon.get("/why/hungry")["decisions"]]
        assert kinds.count("load") == 2
        assert "retry" in kinds


def test_a_stuck_instance_is_ended_and_the_others_do_not_notice() -> None:
    with running({"stuck": "stuck", "good": ""}, "--stall-timeout", "2") as daemon:
        daemon.ask("stuck")
        daemon.ask("good")
        wait_until(lambda: "no step" in daemon.model("stuck")["llamad"]["reason"])
        failure = wait_until(lambda: daemon.get("/why/stuck")["failure"])
        assert failure["kind"] == "instance-stalled"
        assert daemon.ask("good")[0] == 200
        assert daemon.value("good") == "loaded"


def test_an_instance_that_is_stopped_with_a_request_is_ended() -> None:
    with running({"a": "", "b": ""}, "--stall-timeout", "1") as daemon:
        pid = daemon.ask("a")[1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            stuck = pool.submit(daemon.ask, "a")
            assert daemon.ask("b")[0] == 200
            assert time.monotonic() - began < 2
            status, answer = stuck.result(20)
        # It was not answered by the first, and once more asked for.
        assert status in (200, 502, 503), answer
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        assert "stopped for" in str(daemon.get("/why/a")["decisions"])


# ---- pins


def test_pins_survive_crash_reload_and_restart() -> None:
    models = {**ONE_OF_TWO, "configured": "|pinned = true"}
    with running(models, "--models-memory-margin", "200") as daemon:
        assert daemon.post("/models/pin", model="a")[1]["pinned"] is True
        assert daemon.post("/models/unpin", model="configured")[1]["pinned"] is False
        assert daemon.post("/models/hold", model="b", for_s=3600)[1]["held_for_s"] > 3599
        os.kill(daemon.ask("a")[1]["pid"], signal.SIGKILL)
        wait_until(lambda: daemon.value("a") == "unloaded")

        def pinned(which: Daemon) -> list[bool]:
            return [which.model(name)["llamad"]["pinned"] for name in ("a", "b", "configured")]

        assert pinned(daemon) == [True, True, False]
        daemon.write_models({**models, "more": ""})
        assert daemon.post("/reload")[0] == 200
        assert pinned(daemon) == [True, True, False]
        daemon.signal(signal.SIGKILL)
        daemon.process.wait(10)
        again = Daemon(daemon.directory, models, "--models-memory-margin", "200").wait_ready()
        try:
            assert pinned(again) == [True, True, False]
            assert again.model("b")["llamad"]["held_for_s"] < 3600
            assert again.post("/models/unpin", model="b")[1]["held_for_s"] is None
            assert pinned(again) == [True, False, False]
        finally:
            again.stop()


def test_with_the_room_pinned_the_other_is_refused_at_once_by_name() -> None:
    with running(ONE_OF_TWO, "--models-memory-margin", "200") as daemon:
        daemon.ask("a")
        daemon.post("/models/pin", model="a")
        began = time.monotonic()
        status, answer = daemon.ask("b")
        assert (status, answer["error"]["kind"]) == (503, "all-pinned")
        assert "'a' is pinned" in answer["error"]["message"]
        assert time.monotonic() - began < 2
        daemon.post("/models/unpin", model="a")
        assert daemon.ask("b")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/models/pin", {}, 400),
        ("/models/pin", {"model": "nobody"}, 404),
        ("/models/hold", {"model": "a"}, 400),
        ("/models/hold", {"model": "a", "for_s": 0}, 400),
        ("/models/hold", {"model": "a", "for_s": "long"}, 400),
        ("/models/hold", {"model": "a", "for_s": True}, 400),
    ],
)
def test_orders_that_make_no_sense(quiet: Daemon, path: str, body: dict[str, Any], status: int) -> None:
    answered, answer = quiet.post(path, **body)
    assert answered == status, answer
    assert answer["error"]["message"].startswith("cannot")


@pytest.fixture(scope="module")
def quiet() -> Iterator[Daemon]:
    with running({"a": "", "b": "load_s=30"}) as daemon:
        yield daemon


# ---- looking


@pytest.mark.parametrize("path", ["/why/", "/plan/"])
def test_nobody_can_explain_what_is_not_there(quiet: Daemon, path: str) -> None:
    status, answer = quiet.admin("GET", f"{path}nobody")
    assert (status, answer["error"]["kind"]) == (404, "model-not-found")


def test_why_of_a_model_that_waits_says_for_what(quiet: Daemon) -> None:
    quiet.post("/models/load", model="b")
    found = quiet.get("/why/b")
    assert (found["model"], found["state"], found["reason"]) == ("b", "loading", "loading by order")
    assert quiet.get("/plan/b")["message"] == "it waits: it is loading"
    assert quiet.get("/plan/a")["outcome"] == "loads"
    assert quiet.value("a") == "unloaded", "a plan does nothing"
    quiet.post("/models/unload", model="b", wait=True)


def test_without_a_margin_there_are_no_books_of_memory(quiet: Daemon) -> None:
    assert quiet.get("/status")["devices"] == []
    assert quiet.ask("a")[0] == 200
    assert quiet.model("a")["llamad"]["memory"]["host"]["held_bytes"] == MIB


# ---- the whole, under fire


def test_after_a_storm_the_books_equal_what_lives() -> None:
    models = {f"m{i}": f"takes=host:1,FAKE:{150 + 50 * i} {DEVICE}|stop-timeout = 1" for i in range(5)}
    rng = random.Random(7)
    with running(models, "--models-memory-margin", "100", "--drain-after", "1") as daemon:
        for model in models:  # one that is killed while it is measured loads unchecked, and may take too much
            assert daemon.ask(model)[0] == 200
        with sampled(daemon) as samples, ThreadPoolExecutor(4) as pool:
            over = threading.Event()
            clients = [pool.submit(_ask_until, daemon, [*models], over, seed) for seed in range(4)]
            stopped: list[int] = []
            for _ in range(100):
                _harm(daemon, rng, [*models], stopped)
            for pid in stopped:
                _signal(pid, signal.SIGCONT)
            wait_until(lambda: len(samples) > 20)
            over.set()
            statuses = set().union(*(client.result(60) for client in clients))
        assert 200 in statuses
        assert statuses <= {200, 502, 503}, "each was answered, if only with what had gone wrong"
        assert within_budget(samples)
        wait_until(lambda: _settled(daemon), within_s=20)
        alive = [m for m in daemon.get("/models")["data"] if m["llamad"]["pid"]]
        assert all(psutil.pid_exists(model["llamad"]["pid"]) for model in alive)
        expected = sum((150 + 50 * int(model["id"][1:])) * MIB for model in alive)
        wait_until(lambda: books(daemon)["held_bytes"] == expected)
        rows = [
            row["pid"] for row in daemon.get("/ps")["processes"] if row["role"] in ("instance", "measure")
        ]
        assert sorted(rows) == sorted(model["llamad"]["pid"] for model in alive)
        assert not daemon.zombies()
        for model in models:
            assert daemon.post("/models/load", model=model, wait=True)[0] == 200
            assert daemon.ask(model)[0] == 200


def _ask_until(daemon: Daemon, models: list[str], over: threading.Event, seed: int) -> set[int]:
    """A client that goes on whatever it is told; the statuses of its answers."""
    rng, statuses = random.Random(seed), set()
    while not over.is_set():
        statuses.add(daemon.ask(rng.choice(models), take_s=0.02)[0])
    return statuses


def _harm(daemon: Daemon, rng: random.Random, models: list[str], stopped: list[int]) -> None:
    pids = [row["pid"] for row in daemon.get("/ps")["processes"] if row["role"] in ("instance", "measure")]
    what = rng.random()
    if what < 0.3 and pids:
        _signal(rng.choice(pids), signal.SIGKILL)
    elif what < 0.45 and pids:
        stopped.append(rng.choice(pids))
        _signal(stopped[-1], signal.SIGSTOP)
    elif what < 0.6 and stopped:
        _signal(stopped.pop(), signal.SIGCONT)
    elif what < 0.75:
        daemon.post("/models/unload", model=rng.choice(models), force=rng.random() < 0.5)
    else:
        daemon.post("/models/load", model=rng.choice(models))


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _settled(daemon: Daemon) -> bool:
    status = daemon.get("/status")
    busy = [m for m in status["models"] if m["status"]["value"] == "loading" or m["llamad"]["stopping"]]
    return not status["queue"] and not busy
