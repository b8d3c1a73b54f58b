"""Faults of the scheduler, one small change each, that the simulator or the scheduler's tests must catch.

A change that no longer fits the text is an error: then the code has moved on, and the fault has to move with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` stands exactly once in `file` of llamad/core, and becomes `new`."""

    name: str
    file: str
    old: str
    new: str

    def apply(self, core: Path) -> None:
        """Change the copy of llamad/core in that directory. Raises ValueError if the text does not fit."""
        path = core / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(
                f"cannot apply {self.name!r}: its text stands {text.count(self.old)} times in {self.file}"
            )
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


MUTANTS = (
    # ---- who leaves
    Mutant(
        "evict-busy",
        "room.py",
        "for name in self._s.idle if may_evict(model := models[name])]\n        idle.sort",
        "for name in models if (model := models[name]).state is State.LOADED and not model.pinned]\n        idle.sort",
    ),
    Mutant("evict-wanted", "policy.py", "not model.pinned and not model.wanted", "not model.pinned"),
    Mutant("evict-pinned", "policy.py", "model.idle and not model.pinned and", "model.idle and"),
    Mutant(
        "lru-reversed",
        "room.py",
        "idle.sort(key=lambda model: model.state is not State.SLEEPING)",
        "idle.reverse(); idle.sort(key=lambda model: model.state is not State.SLEEPING)",
    ),
    Mutant("sleepers-last", "room.py", "model.state is not State.SLEEPING)", "model.state is State.SLEEPING)"),
    Mutant("evict-none-after-out-of-memory", "room.py", "if not model.evict_one_more:", "if True:"),
    Mutant("unload-pinned-when-idle", "lifecycle.py", " and not model.pinned:\n", ":\n"),
    Mutant("idle-clock-counts-from-the-load", "model.py", "max(self.last_used_at or 0.0, self.loaded_at or 0.0)", "self.loaded_at or 0.0"),
    Mutant(
        "reads-rejuvenate",
        "leases.py",
        "        del model.readers[key]\n",
        "        del model.readers[key]\n        model.last_used_at = now\n        s.mark_idle(model, now)\n",
    ),
    # ---- books
    Mutant("no-give-back", "lifecycle.py", "s.ledger.give_back(event.child, now)", "pass"),
    Mutant("departing-bytes-given-back-at-once", "ledger.py", "self.replace(child, memory)\n        if memory:", "self.replace(child, {})\n        if False:"),
    Mutant("reserve-after-spawn", "lifecycle.py", "added({PROCESSES: 1}, reserved or {})", "{PROCESSES: 1}"),
    Mutant("effective-ignored", "lifecycle.py", "s.ledger.replace(model.child, added({PROCESSES: 1}, effective))", "pass"),
    Mutant("sleepers-woken-without-room", "room.py", "max(0, n - held.get(name, 0)) for", "0 for"),
    Mutant("wake-not-booked", "lifecycle.py", "    s.ledger.replace(model.child, need)\n", ""),
    Mutant("models-max-off-by-one", "ledger.py", "device.total = models_max", "device.total = models_max + 1"),
    Mutant("margin-ignored", "ledger.py", "total - self.external - self.margin - self.held", "total - self.external - self.held"),
    Mutant("others-ignored", "ledger.py", "total - self.external - self.margin - self.held", "total - self.margin - self.held"),
    Mutant("stale-look-is-good-enough", "room.py", "FRESH_S = 0.1", "FRESH_S = 100.0"),
    Mutant("need-forgotten", "measuring.py", "model.need, model.placement = event.need, None", "pass"),
    Mutant("gone-processes-count-as-ours", "ledger.py", " if h.depart_by is None}\n            ours", "}\n            ours"),
    # ---- waiting
    Mutant("drain-never-lifted", "room.py", "if name not in self._drains]:", "if False]:"),
    Mutant("drain-at-once", "room.py", "s.queue.since(model.name) + s.limits.drain_after_s", "s.queue.since(model.name)"),
    Mutant("drain-never", "room.py", "        for other in enough(candidates, short, self._held) or ():", "        for other in ():"),
    Mutant("grant-while-draining", "model.py", "self.state is State.LOADED and self.drain is None", "self.state is State.LOADED"),
    Mutant("room-not-set-aside", "room.py", "        self._set_aside(need)\n        # Without", "        # Without"),
    Mutant("queue-reversed", "queue.py", "rank_s = now - priority", "rank_s = -now - priority"),
    Mutant("giver-stands-ahead", "queue.py", "rank_s = max(rank_s, self._entries[behind].rank_s)", "pass"),
    Mutant("priority-ignored", "queue.py", "now - priority * PRIORITY_STEP_S", "now"),
    Mutant("priority-never-ages", "queue.py", "PRIORITY_STEP_S = 30.0", "PRIORITY_STEP_S = 1e9"),
    Mutant("no-timer-for-waiters", "state.py", "self.timers.set(timer, first.since + self.limits.queue_timeout_s)", "pass"),
    Mutant("queue-without-a-bound", "leases.py", "    elif s.waiting >= most:", "    elif False:"),
    Mutant("abandoned-load-goes-on", "state.py", "self.timers.set(Timer(Deadline.ABANDON, model.name), now + self.limits.abandon_after_s)", "pass"),
    Mutant("full-process-gets-more", "model.py", "bool(limit) and len(self.leases) >= limit", "bool(limit) and len(self.leases) > limit"),
    # ---- leases
    Mutant("double-grant", "lifecycle.py", "    s.emit(GrantLease(key, model.child, model.name))", "    s.emit(GrantLease(key, model.child, model.name)); s.emit(GrantLease(key, model.child, model.name))"),
    Mutant("waiters-lost-at-a-failed-load", "failures.py", "        s.refuse_waiters(model, load_failed(s, model, now))", "        list(s.take_waiters(model))"),
    Mutant("sent-to-the-dying", "leases.py", "elif model.serving and event.avoid != model.child:", "elif model.serving:"),
    Mutant("released-lease-keeps-its-model", "leases.py", "        del model.leases[key]\n        model.last_used_at = now\n        settle(s, model, now)\n", "        del model.leases[key]\n        model.last_used_at = now\n"),
    Mutant("lost-worker-keeps-a-lease", "leases.py", "    for key in keys:\n        _drop", "    for key in keys[1:]:\n        _drop"),
    Mutant("leases-not-ended-at-a-crash", "lifecycle.py", '        s.emit(EndLease(key, "instance-died", f"cannot finish the request: {words}"))', "        pass"),
    # ---- processes
    Mutant("late-news-accepted", "lifecycle.py", "    del s.children[event.child]\n", ""),
    Mutant("never-killed", "lifecycle.py", "        model.stop_stage = StopStage.KILLED\n        s.emit(Kill(model.child))\n        s.note", "        model.stop_stage = StopStage.KILLED\n        s.note"),
    Mutant("hang-never-given-up", "lifecycle.py", "        s.timers.set(Timer(Deadline.PROGRESS, model.name), now + s.limits.load_timeout_s)", "        pass"),
    Mutant("changed-process-goes-on", "orders.py", "current = not model.resident or model.fingerprint == entry.fingerprint", "current = True"),
    # ---- failures
    Mutant("back-off-not-cleared", "orders.py", "    model.failure = None\n    if model.drain is Drain.UNLOAD:", "    if model.drain is Drain.UNLOAD:"),
    Mutant("no-back-off", "failures.py", "Failure(kind, message, count, now + pause)", "Failure(kind, message, count, now)"),
    Mutant("retry-twice-after-out-of-memory", "failures.py", "RETRIES_MAX = 1", "RETRIES_MAX = 2"),
    # ---- operators
    Mutant("unload-not-answered", "lifecycle.py", "    answer_unloads(s, model)\n", ""),
    Mutant("finish-too-early", "orders.py", "if s.stopping and not s.children and", "if s.stopping and"),
)  # fmt: skip
