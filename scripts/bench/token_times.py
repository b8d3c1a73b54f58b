"""When the tokens of streams come: many sockets, one thread, answers looked at no closer than to count their events."""

from __future__ import annotations

import json
import re
import selectors
import statistics
import time
from collections.abc import Callable, Sequence

from raw_client import ANSWER_S, EVENT, Requester, requesters
from serve import Door

_TOKENS = re.compile(rb'"completion_tokens":(\d+)')


class Stream(Requester):
    """A streamed answer, and when its events came, in seconds of `perf_counter`."""

    def begin(self) -> None:
        self.ended = False
        self.at_s: list[float] = []
        self._seen = 0
        super().begin()

    def receive(self) -> float | None:
        ended_s = super().receive()
        now = time.perf_counter()
        fresh = self._answer.count(EVENT, self._seen)
        # The mark of an event may have come in part.
        self._seen = max(0, len(self._answer) - len(EVENT) + 1)
        self.at_s += [now] * fresh
        self.ended = ended_s is not None
        return ended_s

    @property
    def began_s(self) -> float:
        return self._began_s

    @property
    def tokens(self) -> int:
        """As the server counts them."""
        counts = _TOKENS.findall(self._answer)
        if not counts:
            raise SystemExit(f"cannot measure: no usage in {bytes(self._answer[-300:])!r}")
        return int(counts[-1])

    def gaps_ms(self, since_s: float = 0.0, until_s: float = float("inf")) -> list[float]:
        """Between one event and the next, of those that end in this time."""
        pairs = zip(self.at_s, self.at_s[1:], strict=False)
        return [(after - before) * 1000 for before, after in pairs if since_s <= after <= until_s]


class Crowd:
    """Streams that run at the same time. Close it to hang up on those that still do."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *raised: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.socket.close()
        self._selector.close()

    def begin(self, door: Door, path: str, body: bytes) -> Stream:
        """One more."""
        stream = Stream(door, path, body)
        self._selector.register(stream.socket, selectors.EVENT_READ, stream)
        stream.begin()
        return stream

    def run_until(self, enough: Callable[[], bool]) -> None:
        """Read until `enough()`, or until all have ended."""
        while self._selector.get_map() and not enough():
            ready = self._selector.select(ANSWER_S)
            if not ready:
                raise SystemExit(f"cannot measure: no event for {ANSWER_S:.0f} s")
            for key, _ in ready:
                if key.data.receive() is not None:
                    self._selector.unregister(key.fileobj)
                    key.data.socket.close()

    def run(self) -> None:
        """Read to the end of all."""
        self.run_until(lambda: False)


def answer(door: Door, path: str, body: bytes) -> dict[str, object]:
    """One plain answer. Raises SystemExit on any but a 200."""
    with requesters(door, path, [body]) as (one,):
        one.begin()
        while one.receive() is None:
            pass
        found: dict[str, object] = json.loads(one.body)
        return found


def percentile(values: Sequence[float], percent: int) -> float:
    """Of at least two values."""
    return statistics.quantiles(values, n=100)[percent - 1]
