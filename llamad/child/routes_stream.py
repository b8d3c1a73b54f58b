"""The routes of conversations: reading one again, and how far they are. Only the front calls them."""

from __future__ import annotations

from falcon.asgi import Request, Response

from llamad.child.conversations import Recording, Recordings
from llamad.child.door import exchange_of
from llamad.child.generating import SSE_HEADERS
from llamad.errors import RequestError
from llamad.wire.stream import TICKET_HEADER, Status, encode, parse_ticket, parse_tickets


class StreamReplay:
    """`GET /v1/stream?from=N`: the output from byte N on, as far as it has come, and then as it comes."""

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings

    async def on_get(self, req: Request, resp: Response) -> None:
        recording = self._recordings.get(parse_ticket(req.get_header(TICKET_HEADER)))
        offset = _offset(req.get_param("from") or "0")
        recording.replay(offset)  # What cannot be served must be said before the wait for the head.
        await recording.wait_head()
        resp.status = recording.status
        resp.content_type = recording.header(b"content-type").decode("latin-1")
        if recording.is_event_stream:
            resp.set_headers(SSE_HEADERS)
        resp.stream = recording.replay(offset)


class StreamsLookup:
    """`POST /v1/streams/lookup`."""

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings

    async def on_post(self, req: Request, resp: Response) -> None:
        found = self._recordings.find(parse_tickets(exchange_of(req).body))
        resp.content_type = "application/json"
        resp.data = encode([_status(recording) for recording in found])


def _status(recording: Recording) -> Status:
    return Status(
        recording.ticket, recording.over, recording.ring.end, recording.started_at, recording.completed_at
    )


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise RequestError(f"cannot replay from {text[:40]!r}: expected a count of bytes", kind="bad-offset")
    return int(text)
