"""The books of memory by scenario: who is promised what, and what the scheduler does when it is not enough."""

from __future__ import annotations

from typing import Any

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import DeviceReading, ModelEntry, Need
from llamad.core.model import State
from tests.core.driver import Driver

GIB = 1 << 30


class Machine(Driver):
    """A driver with a host of 32 GiB and a GPU of 24 GiB, of which others hold `others` bytes.

    Answers ReadMemory and Measure as the shell would. `takes`: GiB by model, (host, gpu), or ((min), (max)).
    """

    def __init__(
        self, *entries: Any, takes: dict[str, tuple[Any, Any]], margin: int = 0, **limits: Any
    ) -> None:
        self.takes = takes
        self.others = {"host": 0, "gpu": 0}
        self.kept_by_dead = {"host": 0, "gpu": 0}
        self.measured: list[str] = []
        self.measurable = True
        limits.setdefault("models_max", 0)
        super().__init__(*entries, margin_bytes=margin, **limits)

    def step(self, event: e.Event) -> list[a.Action]:
        actions = list(super().step(event))
        for action in list(actions):
            if isinstance(action, a.ReadMemory):
                actions += self.step(e.MemoryRead(self.read()))
            elif isinstance(action, a.Measure):
                self.measured.append(action.model)
                if self.measurable:
                    actions += self.step(e.ChildMeasured(action.child, self.need(action.model)))
                actions += self.step(e.ChildExited(action.child, 0))
        self.actions = actions
        return actions

    def need(self, model: str) -> Need:
        low, high = self.takes[model] if isinstance(self.takes[model][0], tuple) else (self.takes[model],) * 2
        return Need(*({"host": int(host * GIB), "gpu": int(gpu * GIB)} for host, gpu in (low, high)))

    def read(self) -> tuple[DeviceReading, ...]:
        s, readings = self.scheduler.state, []
        for name, total in (("host", 32 * GIB), ("gpu", 24 * GIB)):
            ours = tuple((m.child, s.ledger.held_by(m.child).get(name, 0)) for m in s.residents())
            used = sum(n for _, n in ours) + self.others[name] + self.kept_by_dead[name]
            readings.append(DeviceReading(name, total, max(0, total - used), ours))
        return tuple(readings)

    def available(self, device: str) -> float:
        found = self.scheduler.state.ledger.device(device)
        assert found is not None
        return found.available / GIB

    def effective(self, model: str, host: float, gpu: float) -> None:
        self.step(e.ChildReady(self.child(model), {"host": int(host * GIB), "gpu": int(gpu * GIB)}))


def test_a_model_is_measured_once_and_reserved_before_it_is_spawned() -> None:
    m = Machine("a", takes={"a": (1, 10)})
    m.ask("a")
    assert m.measured == ["a"]
    (spawn,) = m.seen(a.Spawn)
    assert spawn.reserved == {"host": GIB, "gpu": 10 * GIB}
    (note,) = (note for note in m.seen(a.Note) if note.kind == "load")
    assert note.numbers["reserved"] == spawn.reserved
    assert note.numbers["available"] == {"host": 32 * GIB, "gpu": 24 * GIB}
    assert m.available("gpu") == 14
    m.ready("a")
    m.unload("a")
    m.exit("a")
    m.ask("a")
    assert m.measured == ["a"], "a need is measured once for a configuration"


def test_two_loads_never_share_the_same_free_bytes() -> None:
    m = Machine("a", "b", "c", takes={"a": (1, 10), "b": (1, 10), "c": (1, 10)})
    m.loaded("c")
    m.load("a")
    m.load("b")
    assert m.state("a") is State.LOADING
    assert m.asked_to_exit() == ["c"], "the second waits for the idle one's room"
    assert m.available("gpu") == 4


def test_a_small_effective_use_lets_both_stay_though_their_estimates_did_not_fit() -> None:
    m = Machine("a", "b", takes={"a": (1, 14), "b": (1, 14)})
    m.load("a")
    m.effective("a", 1, 9)
    m.load("b")
    m.ready("b")
    assert m.state("a") is State.LOADED
    assert m.state("b") is State.LOADED


def test_the_least_context_is_enough_to_load_and_what_is_free_is_promised() -> None:
    m = Machine("a", "b", takes={"a": (1, 16), "b": ((1, 4), (1, 20))})
    m.loaded("a")
    m.load("b")
    (spawn,) = m.seen(a.Spawn)
    assert spawn.reserved == {"host": GIB, "gpu": 8 * GIB}
    assert spawn.maximum == {"host": GIB, "gpu": 20 * GIB}


def test_as_many_as_needed_leave_one_after_another() -> None:
    m = Machine("a", "b", "c", "big", takes={"a": (1, 8), "b": (1, 8), "c": (1, 8), "big": (1, 20)})
    for name in "abc":
        m.loaded(name)
        m.now += 1
    m.ask("big")
    assert m.asked_to_exit() == ["a"]
    m.exit("a")
    assert m.asked_to_exit() == ["b"]
    m.exit("b")
    assert m.asked_to_exit() == ["c"]
    m.exit("c")
    assert m.spawned() == ["big"]


def test_nobody_leaves_when_it_would_not_be_enough() -> None:
    m = Machine(
        "idle", "busy", "big", takes={"idle": (1, 4), "busy": (1, 10), "big": (1, 20)}, drain_after_s=30
    )
    m.loaded("idle")
    m.loaded("busy")
    stream = m.ask("busy")
    m.ask("big")
    assert m.seen(a.AskExit) == [], "the idle one would leave for nothing"
    m.wait(31)
    assert m.scheduler.state.models["busy"].drain is not None
    m.release(stream)
    assert m.asked_to_exit() == ["busy"]
    m.exit("busy")
    assert m.spawned() == ["big"], "20 of the 20 that are free without the idle one"


def test_only_models_that_hold_what_is_short_leave() -> None:
    m = Machine("cpu", "gpu", "next", takes={"cpu": (8, 0), "gpu": (1, 20), "next": (1, 20)})
    m.loaded("cpu")
    m.now += 1
    m.loaded("gpu")
    m.ask("next")
    assert m.asked_to_exit() == ["gpu"]


def test_a_small_model_may_pass_only_with_room_that_the_head_cannot_use() -> None:
    takes = {"busy": (1, 20), "big": (1, 20), "small-gpu": (1, 2), "small-cpu": (2, 0)}
    m = Machine(*takes, takes=takes)
    m.loaded("busy")
    m.ask("busy")
    m.ask("big")
    m.ask("small-gpu")
    assert m.spawned() == [], "4 GiB are free, but the head will need them"
    m.ask("small-cpu")
    assert m.spawned() == ["small-cpu"]


def test_the_margin_is_kept_free_and_the_refusal_has_the_numbers() -> None:
    m = Machine("a", takes={"a": (1, 23)}, margin=2 * GIB)
    m.ask("a")
    refusal = m.refusal()
    assert (refusal.kind, refusal.status) == ("does-not-fit", 503)
    assert "23.0 GiB needed on gpu, which has 24.0 GiB, 2.0 GiB of them kept free" in refusal.message
    assert refusal.details["devices"]["gpu"] == {"need": 23 * GIB, "available": 22 * GIB}


def test_pins_in_the_way_are_named() -> None:
    m = Machine(ModelEntry("a", pinned=True), "b", takes={"a": (1, 16), "b": (1, 16)})
    m.loaded("a")
    m.ask("b")
    assert m.refusal().kind == "all-pinned"
    assert "16.0 GiB needed on gpu, 8.0 GiB free, and 'a' is pinned" in m.refusal().message


def test_memory_that_others_took_counts_and_comes_back() -> None:
    m = Machine("a", "b", takes={"a": (1, 8), "b": (1, 10)})
    m.loaded("a")
    m.ask("a")
    m.others["gpu"] = 10 * GIB
    m.now += 1
    m.ask("b")
    assert m.spawned() == [], "6 GiB are free and the rest is busy"
    m.others["gpu"] = 0
    m.wait(2)
    assert m.spawned() == ["b"]


def test_with_none_of_ours_in_the_way_it_is_tried_all_the_same() -> None:
    m = Machine("a", takes={"a": (1, 10)})
    m.others["gpu"] = 20 * GIB
    m.ask("a")
    assert m.spawned() == ["a"]
    assert [note.text for note in m.seen(a.Note) if note.kind == "overcommit"] == [
        "tried all the same, none of ours is in the way: 10.0 GiB needed on gpu, 4.0 GiB free"
    ]


def test_room_is_free_only_when_the_device_shows_it() -> None:
    m = Machine("a", "b", "c", takes={"a": (1, 12), "b": (1, 12), "c": (1, 20)})
    m.loaded("a")
    m.loaded("b")
    m.ask("b")
    m.ask("a")
    m.ask("c")
    m.kept_by_dead["gpu"] = 12 * GIB
    m.exit("a", signal=9)
    m.ask("a")
    assert m.spawned() == [], "the dead process's bytes are still there"
    m.wait(0.3)
    m.kept_by_dead["gpu"] = 0
    m.wait(0.3)
    assert m.available("gpu") == 12 or m.spawned()


def test_a_device_that_never_shows_a_release_is_believed_in_the_end() -> None:
    m = Machine("a", "b", takes={"a": (1, 16), "b": (1, 16)})
    m.loaded("a")
    m.ask("b")
    m.kept_by_dead["gpu"] = 16 * GIB
    m.exit("a")
    m.wait(3)
    assert m.spawned() == ["b"]
    assert any(note.kind == "overcommit" for note in m.seen(a.Note))


def test_out_of_memory_evicts_one_more_retries_once_and_then_gives_the_reason() -> None:
    m = Machine("a", "b", "c", takes={"a": (1, 6), "b": (1, 6), "c": (1, 6)})
    for name in "ab":
        m.loaded(name)
        m.now += 1
    key = m.ask("c")
    m.step(e.ChildFailed(m.child("c"), "out-of-memory", "cannot load 'c': cudaMalloc of 6 GiB failed"))
    m.exit("c", exit_code=1)
    assert m.asked_to_exit() == ["a"]
    m.exit("a")
    (spawn,) = m.seen(a.Spawn)
    assert spawn.model == "c"
    m.step(e.ChildFailed(m.child("c"), "out-of-memory", "cannot load 'c': cudaMalloc of 6 GiB failed"))
    m.exit("c", exit_code=1)
    assert (m.refusal().key, m.refusal().kind) == (key, "out-of-memory")
    assert m.refusal().details["devices"]["gpu"]["need"] == 6 * GIB
    assert m.state("b") is State.LOADED


def test_a_kill_by_the_kernel_while_loading_is_out_of_memory() -> None:
    m = Machine("a", takes={"a": (1, 6)})
    m.ask("a")
    m.exit("a", signal=9)
    assert m.refusal().kind == "out-of-memory"


def test_measuring_that_fails_loads_unchecked_and_is_tried_again() -> None:
    m = Machine("a", takes={"a": (1, 6)})
    m.measurable = False
    m.ask("a")
    (spawn,) = m.seen(a.Spawn)
    assert spawn.reserved is None
    m.effective("a", 1, 5)
    assert m.available("gpu") == 19
    m.measurable = True
    m.unload("a")
    m.exit("a")
    m.ask("a")
    assert m.measured == ["a", "a"]
    assert m.seen(a.Spawn)[0].reserved == {"host": GIB, "gpu": 6 * GIB}


def test_a_sleeper_holds_what_it_says_and_leaves_first() -> None:
    entries = [ModelEntry("sleeper", sleep_idle_s=10), "warm", "next"]
    m = Machine(*entries, takes={"sleeper": (1, 8), "warm": (1, 8), "next": (1, 16)})
    m.loaded("sleeper")
    m.wait(11)
    assert m.state("sleeper") is State.SLEEPING
    m.step(e.ChildSlept(m.child("sleeper"), {"host": GIB // 4, "gpu": GIB}))
    assert m.available("gpu") == 23
    m.loaded("warm")
    m.wait(5)
    m.ask("next")
    assert m.asked_to_exit() == ["sleeper"]


def test_waking_is_admitted_like_a_load() -> None:
    m = Machine(ModelEntry("sleeper", sleep_idle_s=10), "other", takes={"sleeper": (1, 12), "other": (1, 16)})
    m.loaded("sleeper")
    m.wait(11)
    m.step(e.ChildSlept(m.child("sleeper"), {"host": GIB // 4, "gpu": 0}))
    m.loaded("other")
    key = m.ask("sleeper")
    assert m.seen(a.Wake) == []
    assert m.asked_to_exit() == ["other"]
    m.exit("other")
    assert len(m.seen(a.Wake)) == 1
    assert m.available("gpu") == 12
    m.ready("sleeper")
    assert m.granted() == [key]


def test_idle_clocks_count_from_the_end_of_the_last_use_and_reads_do_not_wind_them() -> None:
    m = Machine(ModelEntry("a", unload_idle_s=10), takes={"a": (1, 1)})
    m.loaded("a")
    key = m.ask("a")
    m.wait(100)
    assert m.state("a") is State.LOADED
    m.release(key)
    m.wait(9)
    m.release(m.ask("a", load=False))
    m.wait(2)
    assert m.state("a") is State.STOPPING


def test_a_pinned_model_is_never_unloaded_for_being_idle() -> None:
    m = Machine(ModelEntry("a", unload_idle_s=10, pinned=True), takes={"a": (1, 1)})
    m.loaded("a")
    m.wait(100)
    assert m.state("a") is State.LOADED


def test_a_hold_pins_for_a_while() -> None:
    d = Driver("a", "b", models_max=1)
    d.loaded("a")
    d.step(e.PinAsked(77, "a", pinned=True, for_s=60))
    assert d.seen(a.AnswerTicket) == [a.AnswerTicket(77)]
    d.ask("b")
    assert d.refusal().kind == "all-pinned"
    d.wait(61)
    d.ask("b")
    assert d.asked_to_exit() == ["a"]


def test_priority_goes_first_but_the_low_still_advance() -> None:
    entries = [ModelEntry("low"), ModelEntry("high", priority=1), "busy"]
    d = Driver(*entries, models_max=1)
    d.loaded("busy")
    d.ask("busy")
    d.ask("low")
    d.wait(10)
    d.ask("high")
    assert list(d.scheduler.state.queue) == ["high", "low"]
    e2 = Driver(*entries, models_max=1, drain_after_s=1000)
    e2.loaded("busy")
    e2.ask("busy")
    e2.ask("low")
    e2.wait(31)
    e2.ask("high")
    assert list(e2.scheduler.state.queue) == ["low", "high"]


def test_a_load_without_progress_is_given_up_and_progress_winds_the_clock() -> None:
    d = Driver("a", load_timeout_s=60)
    d.ask("a")
    d.wait(59)
    d.step(e.ChildProgressed(d.child("a"), 0.25))
    d.wait(59)
    assert d.seen(a.Kill) == []
    d.wait(2)
    assert len(d.seen(a.Kill)) == 1
    d.exit("a", signal=9)
    assert d.refusal().kind == "load-timeout"
    assert "no progress for 60 s at 25%" in d.refusal().message


def test_a_stalled_process_is_ended_as_a_failure() -> None:
    d = Driver("a")
    d.loaded("a")
    d.ask("a")
    d.step(e.ChildStalled(d.child("a"), "no step of its engine for 60 s, 1 slot is busy"))
    assert len(d.seen(a.Kill)) == 1
    d.exit("a", signal=9)
    view = d.scheduler.model_view("a")
    assert view is not None
    assert view.failed
    assert "no step of its engine" in view.reason


def test_a_device_that_cannot_tell_what_is_free_is_booked_by_promises_alone() -> None:
    """One that only measure children know of: an RPC server, say."""

    class Blind(Machine):
        def read(self) -> tuple[DeviceReading, ...]:
            return tuple(DeviceReading(reading.name, reading.total, None) for reading in super().read())

    m = Blind("a", "b", takes={"a": (1, 16), "b": (1, 16)})
    m.loaded("a")
    assert m.available("gpu") == 8
    m.ask("b")
    assert m.asked_to_exit() == ["a"]
    m.exit("a")
    assert m.spawned() == ["b"], "nothing will ever show that its memory came back"
    assert m.available("gpu") == 8


def test_host_memory_is_believed_when_the_process_is_gone_and_each_device_by_itself() -> None:
    m = Machine("a", "b", takes={"a": (20, 4), "b": (20, 4)})
    m.loaded("a")
    m.kept_by_dead["host"] = 20 * GIB
    m.kept_by_dead["gpu"] = 4 * GIB
    m.exit("a", signal=9)
    m.ask("b")
    held = m.scheduler.state.ledger.departing()
    assert held == {"gpu": 4 * GIB}, "the GPU still shows it, the host's lag is not waited for"


def test_a_need_that_is_doubted_is_measured_anew_before_the_next_load() -> None:
    m = Machine("a", takes={"a": (1, 6)})
    m.loaded("a")
    m.takes["a"] = (1, 9)
    m.step(e.NeedDoubted("a"))
    assert m.available("gpu") == 18, "its process keeps what it holds"
    m.unload("a")
    m.exit("a")
    m.ask("a")
    assert m.measured == ["a", "a"]
    assert m.seen(a.Spawn)[0].reserved == {"host": GIB, "gpu": 9 * GIB}
