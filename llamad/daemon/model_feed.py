"""`/models/sse`: changes of models' states, told as they happen, in the words of llama.cpp's router.

    {"model": NAME, "event": "status_change", "data": {"status": WORD, ...}}    a model has another state
    {"model": "*", "event": "models_reload"}                                   the list has been read again

`data` has `progress` for reports of a load (`{"stages", "current", "value": 0 to 1}`), and with `unloaded` the `exit_code` of
the process that has ended. States are looked at when the scheduler says something of a model, once a pass of the loop: what came
and went within one pass is told by its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from llamad.core.actions import Note
from llamad.core.view import ModelView
from llamad.daemon.admin import Exchange
from llamad.daemon.admin_routes import Route
from llamad.daemon.documents import exit_code_of
from llamad.daemon.loop import Loop, Timer
from llamad.errors import UnavailableError
from llamad.observe.ring import Entry, Ring
from llamad.wire.admin import json_bytes
from llamad.wire.child import Conversation

PING_S = 30.0
"""Less than what proxies usually wait for, so that a quiet stream is not taken for a dead one."""

READERS_PER_CLIENT_MAX = 16
"""Of the FOLLOWERS_MAX that there may be: one client must not take them all."""

_PING = b": ping\n\n"
_STAGE = "text_model"


@dataclass(frozen=True, slots=True)
class Change:
    """`model` "*": of the list itself."""

    model: str
    document: Mapping[str, Any]


class ModelFeed:
    """All readers of the route. `views` are the models now; `is_listed`: whether clients of the public port may see it."""

    def __init__(
        self, loop: Loop, views: Callable[[], Collection[ModelView]], is_listed: Callable[[str], bool]
    ) -> None:
        self._loop = loop
        self._views = views
        self._is_listed = is_listed
        self._told: dict[str, str] = {}
        self._look_due = False
        self._closed = False
        self._changes: Ring[Change] = Ring(1, 1, lambda _: 1)
        self._readers: set[_Reader] = set()

    def routes(self) -> list[Route]:
        return [Route("GET", "/models/sse", self.follow)]

    def follow(self, exchange: Exchange, _: str) -> None:
        """Tell what changes from now on, until the client leaves or the daemon stops."""
        if exchange.request.method == "HEAD" or self._closed:
            exchange.begin("text/event-stream")
            exchange.end()
            return
        client = exchange.client
        if (
            client
            and sum(other.exchange.client == client for other in self._readers) >= READERS_PER_CLIENT_MAX
        ):
            text = f"cannot follow: {READERS_PER_CLIENT_MAX} others of the same client do"
            raise UnavailableError(text, kind="too-many-followers", status=429, retry_after_s=10.0)
        reader = _Reader(self._loop, exchange, self._is_listed)
        try:
            unfollow = self._changes.follow(reader.tell)
        except OverflowError as error:
            raise UnavailableError(str(error), retry_after_s=10.0) from error
        self._readers.add(reader)

        def leave() -> None:
            unfollow()
            reader.stop()
            self._readers.discard(reader)

        exchange.on_abandoned = leave
        reader.begin()

    def close(self) -> None:
        """End all streams: the front's drain waits for them."""
        self._closed = True
        for reader in self._readers:
            reader.stop()
            reader.exchange.end()
        self._readers.clear()

    # ---- what happens

    def note(self, note: Note) -> None:
        """The scheduler has said something, so that a state may have changed."""
        if note.model and not self._look_due:
            self._look_due = True
            self._loop.before_sleep(self._look)

    def reloaded(self) -> None:
        self._changes.append(Change("*", {"model": "*", "event": "models_reload"}))

    def progressed(self, names: Collection[str], value: float) -> None:
        """Of a load. The first name is the model's id."""
        self._tell(
            next(iter(names)),
            {"status": "loading", "progress": {"stages": [_STAGE], "current": _STAGE, "value": value}},
        )

    def reported(self, child: int, report: Conversation) -> None:
        """Conversations change no state."""

    def gone(self, child: int, how: str) -> None:
        """The scheduler hears it, too, and notes it."""

    def _look(self) -> None:
        self._look_due = False
        now = {view.name: view for view in self._views()}
        for name, view in now.items():
            if view.state != self._told.get(name, "unloaded"):
                data: dict[str, Any] = {"status": view.state}
                if view.state == "unloaded":
                    data["exit_code"] = exit_code_of(view) or 0
                self._tell(name, data)
        self._told = {name: view.state for name, view in now.items()}

    def _tell(self, model: str, data: Mapping[str, Any]) -> None:
        self._changes.append(Change(model, {"model": model, "event": "status_change", "data": data}))


class _Reader:
    """One client, and the pings that it gets while nothing happens."""

    def __init__(self, loop: Loop, exchange: Exchange, is_listed: Callable[[str], bool]) -> None:
        self.exchange = exchange
        self._loop = loop
        self._is_listed = is_listed
        self._timer: Timer | None = None

    def begin(self) -> None:
        self.exchange.begin("text/event-stream")
        self._ping()

    def tell(self, entry: Entry[Change]) -> None:
        change = entry.value
        if change.model == "*" or not self.exchange.client or self._is_listed(change.model):
            self.exchange.write(b"data: " + json_bytes(change.document) + b"\n")

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ping(self) -> None:
        self._timer = self._loop.call_later(PING_S, self._ping)
        self.exchange.write(_PING)
