"""The last bytes of an output of unknown length, by their offset in the whole.

Offsets count from the first byte that ever was written. When the ring is full, the oldest bytes are dropped; a reader
that wants them is told, never given others in their place.
"""

from __future__ import annotations

PIECE_BYTES_MAX = 64 * 1024


class BytesLost(Exception):
    """The wanted bytes have been dropped. `start` is the oldest offset there is."""

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


class Ring:
    """At most `limit_bytes`. `start` and `end` are the offsets of the first byte it has and of the next to come."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.start = 0
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def end(self) -> int:
        return self.start + len(self._bytes)

    def append(self, data: bytes) -> None:
        self._bytes += data
        self.drop(len(self._bytes) - self.limit_bytes)

    def drop(self, count: int) -> int:
        """Give up the oldest `count` bytes, as far as they are there; how many that were."""
        count = max(0, min(count, len(self._bytes)))
        del self._bytes[:count]
        self.start += count
        return count

    def read(self, offset: int) -> bytes:
        """A piece of what is there from `offset` on, b"" at the end. Raises BytesLost, and ValueError beyond the end."""
        if offset < self.start:
            raise BytesLost(self.start)
        if offset > self.end:
            raise ValueError(f"cannot read from {offset}: only {self.end} bytes were written")
        begin = offset - self.start
        return bytes(self._bytes[begin : begin + PIECE_BYTES_MAX])
