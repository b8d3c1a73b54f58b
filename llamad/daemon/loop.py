"""One thread's event loop: file descriptors, timers, signals, and work put off to before the next sleep.

It knows nothing of llamad. One pass is: run what was put off, sleep until the nearest timer or the first ready descriptor, fire ready
descriptors, fire due timers. Three rules keep handlers free of surprises:

* A handler may unwatch (and close) any descriptor. Before an event fires, its registration is looked up again, and
  compared by identity: a number that was closed and opened anew in the same pass is another descriptor.
* A timer made during a pass fires in a later pass at the earliest, so a timer that re-arms itself for "now" cannot starve
  the descriptors.
* Signals arrive as bytes on a socket, written by the interpreter's C handler. Nothing of ours runs inside a handler.

An exception that leaves a handler leaves `run`, too: owners of connections catch their own, and what is left is a bug.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import signal
import socket
from collections.abc import Callable
from typing import Any

from llamad.clock import Clock

Handler = Callable[[], object]

SLEEP_S_MAX = 3600.0
_CANCELLED_KEPT_MAX = 64


class Timer:
    """A callback that is due once. `cancel` may be called at any time, any number of times."""

    __slots__ = ("_loop", "callback", "when")

    def __init__(self, loop: Loop, when: float, callback: Handler) -> None:
        self._loop = loop
        self.when = when
        self.callback: Handler | None = callback

    @property
    def pending(self) -> bool:
        return self.callback is not None

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._loop.timer_cancelled()


class _Watch:
    """One descriptor's registration."""

    __slots__ = ("fd", "on_readable", "on_writable")

    def __init__(self, fd: int, on_readable: Handler | None, on_writable: Handler | None) -> None:
        self.fd = fd
        self.on_readable = on_readable
        self.on_writable = on_writable

    @property
    def mask(self) -> int:
        readable = selectors.EVENT_READ if self.on_readable else 0
        return readable | (selectors.EVENT_WRITE if self.on_writable else 0)


class Loop:
    """See the module's text. `clock` and `selector` are parameters so that tests can own time."""

    def __init__(self, clock: Clock, selector: selectors.BaseSelector | None = None) -> None:
        self.clock = clock
        self._selector = selector or selectors.DefaultSelector()
        self._watches: dict[int, _Watch] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_numbers = itertools.count()
        self._cancelled_timers = 0
        self._put_off: list[Handler] = []
        self._running = False
        self._signals: _SignalWakeUp | None = None

    def now(self) -> float:
        return self.clock.monotonic()

    # ---- descriptors

    def watch(self, fd: int, *, readable: Handler | None = None, writable: Handler | None = None) -> None:
        """Replace what is watched on `fd`; with neither handler nothing is."""
        if readable is None and writable is None:
            self.unwatch(fd)
            return
        known = self._watches.get(fd)
        watch = known or _Watch(fd, None, None)
        watch.on_readable, watch.on_writable = readable, writable
        if known is None:
            self._selector.register(fd, watch.mask, watch)
            self._watches[fd] = watch
        else:
            self._selector.modify(fd, watch.mask, watch)

    def unwatch(self, fd: int) -> None:
        """Stop watching, harmless when nothing is. Call it before closing the descriptor."""
        if self._watches.pop(fd, None) is not None:
            self._selector.unregister(fd)

    # ---- timers

    def call_at(self, when: float, callback: Handler) -> Timer:
        timer = Timer(self, when, callback)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), timer))
        return timer

    def call_later(self, delay_s: float, callback: Handler) -> Timer:
        return self.call_at(self.now() + delay_s, callback)

    def timer_cancelled(self) -> None:
        """Cancelled timers stay in the heap until they come up or outnumber the living."""
        self._cancelled_timers += 1
        if self._cancelled_timers > _CANCELLED_KEPT_MAX + len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if entry[2].pending]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    # ---- put-off work and signals

    def before_sleep(self, callback: Handler) -> None:
        """Call `callback` once before the next sleep: the place to join small writes into one."""
        self._put_off.append(callback)

    def on_signal(self, number: int, handler: Handler) -> None:
        """Main thread only."""
        if self._signals is None:
            self._signals = _SignalWakeUp(self)
        self._signals.handle(number, handler)

    # ---- running

    def run(self) -> None:
        """Pass after pass until `stop`."""
        self._running = True
        while self._running:
            self.run_once()

    def stop(self) -> None:
        """Return from `run` after this pass."""
        self._running = False

    def run_once(self, longest_s: float = SLEEP_S_MAX) -> None:
        """One pass that sleeps `longest_s` at most."""
        put_off, self._put_off = self._put_off, []
        for callback in put_off:
            callback()
        timeout = 0.0 if self._put_off else min(longest_s, self._until_timer())
        for key, mask in self._selector.select(timeout):
            self._fire(key.data, mask)
        self._fire_timers()

    def close(self) -> None:
        """Give back signals and descriptors of the loop itself."""
        if self._signals is not None:
            self._signals.close()
            self._signals = None
        self._selector.close()

    def _until_timer(self) -> float:
        while self._timers and not self._timers[0][2].pending:
            heapq.heappop(self._timers)
            self._cancelled_timers -= 1
        return max(0.0, self._timers[0][0] - self.now()) if self._timers else SLEEP_S_MAX

    def _fire(self, watch: _Watch, mask: int) -> None:
        if mask & selectors.EVENT_READ and self._is_current(watch) and watch.on_readable:
            watch.on_readable()
        if mask & selectors.EVENT_WRITE and self._is_current(watch) and watch.on_writable:
            watch.on_writable()

    def _is_current(self, watch: _Watch) -> bool:
        return self._watches.get(watch.fd) is watch

    def _fire_timers(self) -> None:
        now, due = self.now(), []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled_timers -= 1
            else:
                callback()


class _SignalWakeUp:
    """Turns signals into readable bytes and those into calls from the loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._handlers: dict[int, Handler] = {}
        self._previous: dict[int, Any] = {}
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._previous_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        loop.watch(self._reader.fileno(), readable=self._dispatch)

    def handle(self, number: int, handler: Handler) -> None:
        self._handlers[number] = handler
        previous = signal.signal(number, _ignore_in_handler)
        self._previous.setdefault(number, previous)

    def close(self) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        signal.set_wakeup_fd(self._previous_fd)
        self._loop.unwatch(self._reader.fileno())
        self._reader.close()
        self._writer.close()

    def _dispatch(self) -> None:
        for number in self._reader.recv(4096):
            handler = self._handlers.get(number)
            if handler is not None:
                handler()


def _ignore_in_handler(number: int, frame: object) -> None:
    """The byte on the wake-up descriptor is all that is wanted."""
