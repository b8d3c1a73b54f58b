"""Drives a Scheduler by hand: one readable call for each thing that can happen, with the time set by the test."""

from __future__ import annotations

from typing import Any, TypeVar

from llamad.core import actions as a
from llamad.core import events as e
from llamad.core.events import LeaseKey, Limits, ModelEntry
from llamad.core.invariants import broken
from llamad.core.model import State
from llamad.core.scheduler import Scheduler

A = TypeVar("A")


class Driver:
    """`now` only moves when the test says so. Invariants are checked after each step."""

    def __init__(self, *entries: ModelEntry | str, **limits: Any) -> None:
        self.scheduler = Scheduler()
        self.now = 100.0
        self.actions: list[a.Action] = []
        self._leases = 0
        self._tickets = 0
        self.configure(*entries, starting=True, **limits)

    def step(self, event: e.Event) -> list[a.Action]:
        self.actions = self.scheduler.step(event, self.now)
        assert broken(self.scheduler.state) == []
        return self.actions

    def configure(self, *entries: ModelEntry | str, starting: bool = False, **limits: Any) -> list[a.Action]:
        models = tuple(
            ModelEntry(entry, fingerprint="1") if isinstance(entry, str) else entry for entry in entries
        )
        return self.step(e.ModelsConfigured(models, Limits(**limits), starting))

    def ask(self, model: str, worker: int = 1, **fields: Any) -> LeaseKey:
        self._leases += 1
        key = LeaseKey(worker, self._leases)
        self.step(e.LeaseAsked(key, model, **fields))
        return key

    def release(self, key: LeaseKey) -> list[a.Action]:
        return self.step(e.LeaseReleased(key))

    def cancel(self, key: LeaseKey) -> list[a.Action]:
        return self.step(e.LeaseCancelled(key))

    def load(self, model: str) -> int:
        self._tickets += 1
        self.step(e.LoadAsked(self._tickets, model))
        return self._tickets

    def unload(self, model: str, *, force: bool = False) -> int:
        self._tickets += 1
        self.step(e.UnloadAsked(self._tickets, model, force))
        return self._tickets

    def ready(self, model: str, slots: int = 0) -> list[a.Action]:
        return self.step(e.ChildReady(self.child(model), slots=slots))

    def exit(
        self, model: str, exit_code: int | None = 0, signal: int | None = None, tail: str = ""
    ) -> list[a.Action]:
        if signal is not None:
            exit_code = None
        return self.step(e.ChildExited(self.child(model), exit_code, signal, tail))

    def loaded(self, model: str, slots: int = 0) -> None:
        """Load `model` by order and see it ready and idle."""
        self.load(model)
        self.ready(model, slots)
        assert self.state(model) is State.LOADED

    def wait(self, seconds: float) -> list[a.Action]:
        """Let time pass, with a tick at every deadline on the way; gives all actions."""
        until, done = self.now + seconds, []
        while (at := self.scheduler.next_deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            done += self.step(e.ClockTicked())
        self.now = until
        self.actions = done
        return done

    # ---- looking

    def child(self, model: str) -> int:
        child = self.scheduler.state.models[model].child
        assert child, f"{model} has no process"
        return child

    def state(self, model: str) -> State:
        return self.scheduler.state.models[model].state

    def seen(self, kind: type[A]) -> list[A]:
        """Actions of the last step of one kind."""
        return [action for action in self.actions if isinstance(action, kind)]

    def granted(self) -> list[LeaseKey]:
        return [grant.key for grant in self.seen(a.GrantLease)]

    def refusal(self) -> a.RefuseLease:
        (refusal,) = self.seen(a.RefuseLease)
        return refusal

    def spawned(self) -> list[str]:
        return [spawn.model for spawn in self.seen(a.Spawn)]

    def asked_to_exit(self) -> list[str]:
        return [self.scheduler.state.children[ask.child] for ask in self.seen(a.AskExit)]
