"""What random worlds have found, each as the shortest story that shows it."""

from __future__ import annotations

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import DeviceReading, ModelEntry
from llamad.core.model import State
from tests.core.driver import Driver
from tests.core.test_memory import GIB, Machine


def test_a_lost_workers_waiters_do_not_get_what_its_other_leases_leave() -> None:
    d = Driver(ModelEntry("a", concurrency_limit=1))
    d.loaded("a")
    d.ask("a", worker=7)
    d.ask("a", worker=7)
    other = d.ask("a", worker=8)
    d.step(e.WorkerLost(7))
    assert d.granted() == [other]


def test_a_raised_concurrency_limit_lets_those_in_who_wait() -> None:
    d = Driver(ModelEntry("a", concurrency_limit=1))
    d.loaded("a")
    d.ask("a")
    waiting = d.ask("a")
    d.configure(ModelEntry("a", concurrency_limit=2))
    assert d.granted() == [waiting]


def test_a_device_that_lists_a_gone_process_has_not_given_its_memory_back() -> None:
    class Lingering(Machine):
        """Lists what the dead kept as theirs, as drivers do until a process is reaped."""

        child_of_dead = 0

        def read(self) -> tuple[DeviceReading, ...]:
            dead = ((self.child_of_dead, self.kept_by_dead["gpu"]),)
            return tuple(
                DeviceReading(r.name, r.total, r.free, r.ours + dead if r.name == "gpu" else r.ours)
                for r in super().read()
            )

    m = Lingering("a", "b", takes={"a": (1, 20), "b": (1, 20)})
    m.loaded("a")
    m.child_of_dead, m.kept_by_dead["gpu"] = m.child("a"), 20 * GIB
    m.exit("a", signal=9)
    m.ask("b")
    assert m.spawned() == []
    m.kept_by_dead["gpu"] = 0
    m.wait(0.2)
    assert m.spawned() == ["b"]


def test_what_a_process_takes_beyond_its_promise_is_not_promised_again() -> None:
    class Greedy(Machine):
        """`a` was promised nothing, as it could not be measured, and takes 20 GiB."""

        def read(self) -> tuple[DeviceReading, ...]:
            child = self.scheduler.state.models["a"].child
            taken = {"host": 0, "gpu": 20 * GIB if child else 0}
            return tuple(
                DeviceReading(r.name, r.total, r.free - taken[r.name], ((child, taken[r.name]),))  # type: ignore[operator]
                for r in super().read()
            )

    m = Greedy("a", "b", takes={"a": (1, 20), "b": (1, 1)})
    m.measurable = False
    m.loaded("a")
    m.measurable = True
    m.wait(1)
    m.ask("b")
    assert m.spawned() == ["b"]
    assert m.available("gpu") == 24 - 20 - 1


def test_a_process_that_was_given_up_gets_no_requests_though_it_may_still_say_ready() -> None:
    d = Driver("a", "b", load_timeout_s=60)
    d.ask("a")
    d.wait(61)
    assert len(d.seen(a.Kill)) == 1
    d.ready("a")
    assert d.granted() == []
    d.exit("a", signal=9)
    assert d.refusal().kind == "load-timeout"
    d.loaded("b")
    d.step(e.ChildStalled(d.child("b"), "no step of its engine for 60 s"))
    waiting = d.ask("b")
    assert d.granted() == []
    d.exit("b", signal=9)
    d.ready("b")
    assert d.granted() == [waiting], "the first crash of one that served costs nothing"


def test_a_process_that_says_it_failed_and_does_not_exit_is_ended() -> None:
    d = Driver("a")
    d.ask("a")
    d.step(e.ChildFailed(d.child("a"), "load-failed", "cannot load 'a': bad magic"))
    d.wait(11)
    assert len(d.seen(a.Kill)) == 1
    d.exit("a", signal=9)
    assert (d.refusal().kind, d.refusal().message) == ("load-failed", "cannot load 'a': bad magic")


def test_a_measure_process_that_hangs_is_ended_and_the_model_loads_unchecked() -> None:
    d = Driver("a", margin_bytes=0)
    d.ask("a")
    d.step(e.MemoryRead((DeviceReading("host", GIB, GIB),)))
    assert d.state("a") is State.MEASURING
    d.wait(61)
    assert len(d.seen(a.Kill)) == 1
    d.exit("a", signal=9)
    d.step(e.MemoryRead((DeviceReading("host", GIB, GIB),)))
    assert d.spawned() == ["a"]


def test_a_stalled_measure_process_is_ended_at_once() -> None:
    d = Driver("a", margin_bytes=0)
    d.ask("a")
    d.step(e.MemoryRead((DeviceReading("host", GIB, GIB),)))
    d.step(e.ChildStalled(d.child("a"), "no heartbeat"))
    assert len(d.seen(a.Kill)) == 1


def test_a_load_timeout_set_by_a_reload_counts_for_loads_under_way() -> None:
    d = Driver("a", load_timeout_s=0)
    d.ask("a")
    d.configure("a", load_timeout_s=60)
    d.wait(61)
    assert len(d.seen(a.Kill)) == 1


def test_an_idle_clock_that_ran_out_while_somebody_waited_is_not_forgotten() -> None:
    d = Driver(ModelEntry("a", unload_idle_s=20))
    d.loaded("a")
    d.wait(19.5)
    unsure = d.ask("a", avoid=d.child("a"))
    d.wait(0.7)
    d.cancel(unsure)
    d.wait(2)
    assert d.asked_to_exit() == ["a"]


def test_a_process_that_could_not_be_started_has_no_exit_status() -> None:
    d = Driver("a")
    d.ask("a")
    d.step(e.ChildNotSpawned(d.child("a"), "no such file"))
    (note,) = [note for note in d.seen(a.Note) if note.kind == "exited"]
    assert note.text == "the process of 'a' could not be started"


def test_a_changed_process_is_closed_before_those_who_wait_for_a_turn_get_it() -> None:
    d = Driver(ModelEntry("a", fingerprint="1", concurrency_limit=1))
    d.loaded("a")
    d.ask("a")
    d.ask("a")
    d.configure(ModelEntry("a", fingerprint="2", concurrency_limit=2))
    assert d.granted() == []


def test_an_unload_that_is_overtaken_does_not_bring_back_an_old_configuration() -> None:
    d = Driver(ModelEntry("a", fingerprint="1"))
    d.loaded("a")
    running = d.ask("a")
    d.unload("a")
    d.configure(ModelEntry("a", fingerprint="2"))
    d.load("a")
    waiting = d.ask("a")
    assert d.granted() == []
    d.release(running)
    d.exit("a")
    d.ready("a")
    assert d.granted() == [waiting]


def test_reloads_do_not_keep_a_hanging_load_alive() -> None:
    d = Driver("a", load_timeout_s=60)
    d.ask("a")
    d.wait(40)
    d.configure("a", load_timeout_s=60)
    d.wait(21)
    assert len(d.seen(a.Kill)) == 1


def test_a_device_that_tells_processes_apart_shows_others_also_while_none_of_ours_is_there() -> None:
    class Telling(Machine):
        """Lists those that use it, and for a load that has not begun to nobody."""

        taken: dict[str, int] | None = None

        def read(self) -> tuple[DeviceReading, ...]:
            gpu = (self.taken or {}).get("gpu", 0)
            ours = ((self.child("a"), gpu),) if gpu else ()
            return (
                DeviceReading("host", 32 * GIB, 32 * GIB),
                DeviceReading("gpu", 24 * GIB, 24 * GIB - gpu - self.others["gpu"], ours),
            )

    m = Telling("a", "b", "c", takes={"a": (0, 8), "b": (0, 8), "c": (0, 8)})
    m.loaded("a")
    m.taken = {"gpu": 8 * GIB}
    m.wait(1)
    m.ask("b")
    m.taken = None
    m.exit("a", signal=9)
    m.others["gpu"] = 12 * GIB
    m.wait(3)
    m.ask("c")
    assert m.spawned() == [], "4 GiB are left beside b's 8 and others' 12"


def test_a_lifted_drain_sends_nobody_to_the_process_that_it_saw_dying() -> None:
    d = Driver("a", "b", models_max=1, drain_after_s=5)
    d.loaded("a")
    d.ask("a")
    cold = d.ask("b")
    d.wait(6)
    unsure = d.ask("a", avoid=d.child("a"))
    d.cancel(cold)
    assert d.granted() == []
    d.wait(1.5)
    assert d.granted() == [unsure]


def test_bytes_believed_free_are_others_while_more_are_on_their_way_back() -> None:
    m = Machine("a", "b", "c", takes={"a": (0, 10), "b": (0, 10), "c": (0, 12)})
    m.loaded("a")
    m.loaded("b")
    m.ask("c")
    m.kept_by_dead["gpu"] = 10 * GIB
    m.exit("a", signal=9)
    m.wait(1.5)
    m.kept_by_dead["gpu"] = 20 * GIB
    m.exit("b", signal=9)
    m.wait(1)
    assert m.spawned() == [], "the device has 4 GiB, whatever the books believe of a"
    m.kept_by_dead["gpu"] = 10 * GIB
    m.wait(0.3)
    assert m.spawned() == ["c"]


class Blind(Machine):
    """Devices that do not tell processes apart, and loads that have taken nothing yet."""

    def read(self) -> tuple[DeviceReading, ...]:
        free = 24 * GIB - self.others["gpu"]
        return (DeviceReading("host", 32 * GIB, 32 * GIB), DeviceReading("gpu", 24 * GIB, free))


def test_what_a_dropped_load_never_took_does_not_hide_what_others_hold() -> None:
    m = Blind("a", "b", "c", takes={"a": (0, 9), "b": (0, 1), "c": (0, 21)})
    m.others["gpu"] = 4 * GIB
    m.load("a")
    m.unload("a")
    m.wait(1)
    m.ask("b")
    m.exit("a", signal=9)
    m.wait(3)
    m.ask("c")
    assert m.spawned() == []
    assert m.available("gpu") == 24 - 4 - 1


def test_what_one_that_falls_asleep_gives_back_does_not_hide_what_others_hold() -> None:
    m = Blind(ModelEntry("a", sleep_idle_s=5), "b", "c", takes={"a": (0, 9), "b": (0, 1), "c": (0, 21)})
    m.others["gpu"] = 4 * GIB
    m.loaded("a")
    m.wait(6)
    m.ask("b")
    m.step(e.ChildSlept(m.child("a"), {"host": 0, "gpu": 0}))
    m.wait(1)
    m.ask("c")
    assert m.available("gpu") == 24 - 4 - 1


def test_an_order_that_a_crash_has_ended_leaves_the_queue() -> None:
    d = Driver("a", "b", models_max=1, drain_after_s=5)
    d.loaded("a")
    d.ask("a")
    d.ask("b")
    d.wait(6)
    ticket = d.load("a")
    d.step(e.TicketDropped(ticket))
    d.exit("a", signal=9)
    assert d.spawned() == ["b"]


def test_an_unload_ends_earlier_orders_to_load_and_what_nobody_wants_leaves_the_queue() -> None:
    d = Driver("a", "b", models_max=1)
    d.loaded("b")
    d.ask("b")
    earlier = d.load("a")
    d.unload("a")
    answers = {answer.ticket: answer.kind for answer in d.seen(a.AnswerTicket)}
    assert answers.pop(earlier) == "superseded"
    assert list(answers.values()) == [""]
    assert len(d.scheduler.state.queue) == 0


def test_a_model_that_somebody_waits_for_is_nobodys_victim() -> None:
    m = Machine(
        ModelEntry("a", sleep_idle_s=5),
        ModelEntry("b"),
        ModelEntry("c"),
        takes={"a": (1, 20), "b": (1, 20), "c": (6, 0)},
    )
    m.loaded("a")
    m.wait(6)
    m.step(e.ChildSlept(m.child("a"), {"host": 3 * GIB, "gpu": 0}))
    m.loaded("b")
    m.ask("b")
    m.ask("a")
    m.others["host"] = 24 * GIB
    m.wait(1)
    m.ask("c")
    assert m.asked_to_exit() == [], "the sleeper has what c lacks, and is waited for itself"


def test_a_pinned_model_stays_though_time_leaps() -> None:
    d = Driver(ModelEntry("a", pinned=True, sleep_idle_s=5, unload_idle_s=20))
    d.loaded("a")
    d.now += 3600
    d.step(e.ClockTicked())
    assert d.asked_to_exit() == []
    assert len(d.seen(a.Sleep)) == 1


def test_a_sleeper_that_waits_to_wake_does_not_hold_up_those_ahead_of_it_for_ever() -> None:
    """It has the only process, they have set aside the memory that it needs: nobody would ever move."""
    m = SlowToLook(
        ModelEntry("a", sleep_idle_s=5),
        "b",
        takes={"a": (1, 20), "b": (1, 20)},
        models_max=1,
        drain_after_s=30,
    )
    m.loaded("b")
    m.unload("b")
    m.exit("b")
    m.loaded("a")
    m.wait(6)
    m.step(e.ChildSlept(m.child("a"), {"host": GIB, "gpu": 0}))
    m.looks = False
    first = m.ask("b")
    m.ask("a")
    m.looks = True
    m.step(e.MemoryRead(m.read()))
    m.wait(29)
    assert m.state("a") is State.SLEEPING
    m.wait(2)
    assert m.state("a") is State.STOPPING
    m.exit("a")
    assert m.spawned() == ["b"]
    m.ready("b")
    assert m.granted() == [first]


class SlowToLook(Machine):
    """Does not answer ReadMemory while `looks` is False."""

    looks = True

    def step(self, event: e.Event) -> list[a.Action]:
        return super().step(event) if self.looks else Driver.step(self, event)


def test_after_an_order_to_load_requests_wait_though_the_last_load_failed() -> None:
    d = Driver("a", "b", models_max=1)
    d.ask("a")
    d.exit("a", exit_code=1)
    assert d.refusal().kind == "load-failed"
    d.loaded("b")
    d.ask("b")
    d.load("a")
    d.ask("a")
    assert d.seen(a.RefuseLease) == []


def test_a_look_at_a_load_that_has_ended_before_it_is_told_does_not_hide_what_others_hold() -> None:
    m = SlowToLook("a", "b", takes={"a": (0, 9), "b": (0, 1)})
    m.others["gpu"] = 6 * GIB
    m.ask("a")
    m.looks = False
    m.wait(1)
    m.ask("b")
    seen_while_a_had_nothing = (
        DeviceReading("host", 32 * GIB, 32 * GIB),
        DeviceReading("gpu", 24 * GIB, 18 * GIB),
    )
    m.ready("a")
    m.step(e.MemoryRead(seen_while_a_had_nothing))
    assert m.available("gpu") == 24 - 6 - 9


def test_others_that_grow_while_something_loads_are_seen_as_far_as_can_be() -> None:
    m = Blind("a", "b", takes={"a": (0, 9), "b": (0, 13)})
    m.ask("a")
    m.others["gpu"] = 12 * GIB
    m.wait(1)
    m.ask("b")
    assert m.available("gpu") == 24 - 9 - (12 - 9), "a may have taken 9 of the 12 that are used, and no more"
    assert m.spawned() == []


def test_a_drain_that_goes_on_for_another_says_for_whom() -> None:
    d = Driver("a", "b", "c", models_max=1, drain_after_s=10)
    d.loaded("a")
    running = d.ask("a")
    first = d.ask("b")
    d.wait(1)
    d.ask("c")
    d.wait(12)
    d.ask("a")
    d.cancel(first)
    assert [note.numbers["wanting"] for note in d.seen(a.Note) if note.kind == "drain"] == ["c"]
    d.release(running)
    assert [note.text for note in d.seen(a.Note)] == ["drained to make room for 'c', which has waited 12 s"]


def test_a_look_from_before_an_end_does_not_show_that_its_memory_has_come_back() -> None:
    m = SlowToLook("a", "b", takes={"a": (0, 20), "b": (0, 20)})
    m.loaded("b")
    m.unload("b")
    m.exit("b")
    m.loaded("a")
    m.looks = False
    m.wait(1)
    m.ask("b")
    seen_while_a_had_nothing = (
        DeviceReading("host", 32 * GIB, 32 * GIB),
        DeviceReading("gpu", 24 * GIB, 24 * GIB, ((m.child("a"), 0),)),
    )
    m.exit("a", signal=9)
    m.step(e.MemoryRead(seen_while_a_had_nothing))
    assert m.spawned() == []
    m.looks = True
    m.wait(1)
    assert m.state("b") is State.LOADING, "the next look has begun after it"
