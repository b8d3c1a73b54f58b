"""The routes of conversations, as llama.cpp's web client knows them: follow one, stop one, look several up.

Nobody can list them: who does not know an id learns nothing, and with keys nobody finds what another key has begun.
"""

from __future__ import annotations

import asyncio
from typing import Any

import falcon.asgi
import msgspec

from llamad.errors import LlamadError, RequestError
from llamad.proxy.connection import UpstreamBroke
from llamad.proxy.heads import request_head
from llamad.proxy.lease import LeaseClient
from llamad.proxy.lookup import field_of_query
from llamad.proxy.pool import Pool
from llamad.proxy.relay import InstanceRelay
from llamad.proxy.request import Request, conversation_id
from llamad.wire.lease import LOOKUP_MAX, Place
from llamad.wire.stream import LOOKUP_PATH, Status, Tickets, encode, parse_statuses

LOOKUP_BODY_BYTES_MAX = 64 * 1024
LOOKUP_ANSWER_BYTES_MAX = 64 * 1024
# An instance that answers later is stuck; what the supervisor knows is told then.
LOOKUP_WITHIN_S = 1.0

Response = falcon.asgi.Response


class Stream:
    """`/v1/stream?conv_id=ID`: `GET` follows it from byte `from` on, `DELETE` stops it.

    llama.cpp's first clients had the id in the path, `/v1/stream/ID`; it may have slashes in it.
    """

    def __init__(self, instances: InstanceRelay, leases: LeaseClient) -> None:
        self._instances = instances
        self._leases = leases

    async def on_get(self, req: Request, resp: Response, id: str = "") -> None:
        await self._instances.follow(req, resp, _id_of(req, id))

    async def on_delete(self, req: Request, resp: Response, id: str = "") -> None:
        """One that is not there is as good as stopped."""
        await self._leases.stop_conversation(_id_of(req, id), req.owner)
        resp.status = 204


class Lookup:
    """`POST /v1/streams/lookup`: how far the named ones are. Those that are not there are left out."""

    def __init__(self, leases: LeaseClient, pool: Pool) -> None:
        self._leases = leases
        self._pool = pool

    async def on_post(self, req: Request, resp: Response) -> None:
        ids = _ids_in(await req.read_body(LOOKUP_BODY_BYTES_MAX))
        places = await self._leases.lookup(ids, req.owner) if ids else []
        statuses = await self._statuses(places)
        documents = [_document(place, statuses.get(place.ticket)) for place in places]
        resp.content_type = "application/json"
        resp.data = msgspec.json.encode([document for document in documents if document])

    async def _statuses(self, places: list[Place]) -> dict[int, Status]:
        """What the instances say of them, by ticket."""
        tickets: dict[tuple[str, str], list[int]] = {}
        for place in places:
            if place.address:
                tickets.setdefault((place.address, place.token), []).append(place.ticket)
        asked = [self._ask(address, token, mine) for (address, token), mine in tickets.items()]
        return {status.ticket: status for said in await asyncio.gather(*asked) for status in said}

    async def _ask(self, address: str, token: str, tickets: list[int]) -> list[Status]:
        try:
            async with asyncio.timeout(LOOKUP_WITHIN_S):
                return parse_statuses(await self._post(address, token, encode(Tickets(tickets))))
        except (TimeoutError, LlamadError):
            return []

    async def _post(self, address: str, token: str, body: bytes) -> bytes:
        head = request_head(
            "POST",
            LOOKUP_PATH.encode(),
            [(b"content-type", b"application/json")],
            host="localhost" if address.startswith("unix:") else address,
            authorization=b"Bearer " + token.encode(),
            body_bytes=len(body),
            request_id="lookup",
        )
        connection = await self._pool.exchange(address, head, body)
        try:
            answer = bytearray()
            while (chunk := await connection.next_chunk()) is not None:
                answer += chunk
                if len(answer) > LOOKUP_ANSWER_BYTES_MAX:
                    raise UpstreamBroke(f"its answer is over {LOOKUP_ANSWER_BYTES_MAX} bytes", began=True)
            return bytes(answer)
        finally:
            self._pool.give_back(address, connection)


def _id_of(req: Request, in_path: str) -> str:
    given = in_path or field_of_query(req.query_string, "conv_id")
    if not given:
        raise RequestError(
            "cannot choose a conversation: the query names none in 'conv_id'", kind="bad-query"
        )
    return conversation_id(given.encode(errors="surrogateescape"))


def _ids_in(body: bytes | bytearray) -> list[str]:
    """The ids that a lookup names, each once. What can be no id is nobody's."""
    try:
        named = msgspec.json.decode(body, type=dict[str, Any]).get("conversation_ids")
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"cannot read the body as a JSON object: {error}", kind="bad-json") from None
    if not isinstance(named, list):
        raise RequestError("cannot read 'conversation_ids': expected an array", kind="bad-field")
    ids = list(dict.fromkeys(id for id in named if isinstance(id, str) and _is_id(id)))
    if len(ids) > LOOKUP_MAX:
        raise RequestError(f"cannot look {len(ids)} conversations up: at most {LOOKUP_MAX}", kind="bad-field")
    return ids


def _is_id(text: str) -> bool:
    try:
        return conversation_id(text.encode()) == text
    except (RequestError, UnicodeEncodeError):
        return False


def _document(place: Place, status: Status | None) -> dict[str, Any] | None:
    """llama.cpp's fields. One that has lost its instance, or never had one and is over, is not there to be resumed."""
    if status is None and place.over:
        return None
    return {
        "conversation_id": place.conversation,
        "is_done": status.is_done if status else False,
        "total_bytes": status.total_bytes if status else 0,
        "started_at": place.started_at,
        "completed_at": status.completed_at if status else 0,
    }
