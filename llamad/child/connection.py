"""One connection of the instance's HTTP server, with bounds that uvicorn's has not.

A loopback port is open to every user of the machine, and the token is in the head. So a head has a size and a time, before
which nobody has shown a token: 170 MB of header fields would otherwise come to 3.5 GB here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 2 << 20
"""Over what the public front lets through, 100 fields of 8 KiB."""
FIRST_HEAD_WITHIN_S = 30.0


class Connection(HttpToolsProtocol):
    """Dropped without a word when its head is too long, or the first one does not come."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience = self.loop.call_later(FIRST_HEAD_WITHIN_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_patient()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.abort()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._be_patient()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
