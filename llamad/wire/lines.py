"""Newline-delimited framing with a bound on the line."""

from __future__ import annotations

from llamad.errors import ProtocolError


class LineBuffer:
    """Cuts a byte stream into lines, however it was split in transit.

    A line longer than `limit_bytes` is a ProtocolError, or with `truncate` (logs: losing the rest of one line is
    better than losing the stream) its first `limit_bytes` bytes are given and the rest up to the newline is dropped.
    """

    def __init__(self, limit_bytes: int, *, truncate: bool = False) -> None:
        self._limit = limit_bytes
        self._truncate = truncate
        self._rest = bytearray()
        self._dropping = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines completed by `data`, without their newline."""
        *whole, rest = data.split(b"\n")
        lines = []
        for part in whole:
            self._append(part)
            if not self._dropping:
                lines.append(bytes(self._rest))
            self._rest.clear()
            self._dropping = False
        lines.extend(self._append(rest, cut=True))
        return lines

    def flush(self) -> bytes | None:
        """What stands after the last newline when the stream has ended, if anything."""
        rest, dropping = bytes(self._rest), self._dropping
        self._rest.clear()
        self._dropping = False
        return rest if rest and not dropping else None

    def _append(self, part: bytes, *, cut: bool = False) -> list[bytes]:
        """Grow the open line; with `cut`, hand out a truncated line as soon as it is too long."""
        if self._dropping:
            return []
        self._rest += part
        if len(self._rest) <= self._limit:
            return []
        if not self._truncate:
            raise ProtocolError(f"cannot read a line of over {self._limit} bytes")
        del self._rest[self._limit :]
        if not cut:
            return []
        line = bytes(self._rest)
        self._rest.clear()
        self._dropping = True
        return [line]
