"""`POST /slots/{id}?action=save|restore|erase`: what a slot remembers, as a file, from a file, or no more."""

from __future__ import annotations

from functools import partial
from typing import Any

from falcon.asgi import Request, Response

from llamad.api.fields import Fields
from llamad.api.json_body import parse_object
from llamad.child.door import exchange_of
from llamad.child.routes_model import answer_json
from llamad.child.service import Service
from llamad.child.slot_files import SlotFiles, checked_name
from llamad.clock import Clock
from llamad.engine.orders import SlotDone, SlotOrder, SlotState
from llamad.errors import LlamadError, RequestError

ACTIONS = ("save", "restore", "erase")


class SlotActions:
    """llama-server's documents. `files` None: there is no `slot-save-path`, so none of this is open."""

    def __init__(self, service: Service, files: SlotFiles | None, clock: Clock) -> None:
        self._service = service
        self._files = files
        self._clock = clock

    async def on_post(self, req: Request, resp: Response, slot: str) -> None:
        files = self._files
        if files is None:
            raise LlamadError(
                "cannot change slots: the model has no slot-save-path", kind="not-supported", status=501
            )
        action = req.get_param("action") or ""
        if action not in ACTIONS:
            raise _bad("action", f"expected one of {', '.join(ACTIONS)}")
        if not (slot.isascii() and slot.isdecimal() and len(slot) < 6):
            raise _bad("id", "expected the number of a slot")
        began, id = self._clock.monotonic(), int(slot)
        if action == "erase":
            done = await self._order(req, id, action)
            answer_json(resp, {"id_slot": id, "n_erased": done.n_tokens})
            return
        body = exchange_of(req).body
        name = checked_name(Fields(parse_object(body) if body else {}).text("filename", ""))
        document: dict[str, Any] = {"id_slot": id, "filename": name}
        if action == "save":
            done = await self._order(req, id, action)
            assert done.state is not None
            n_bytes = await self._service.on_worker(partial(files.save, name, done.state))
            document |= {"n_saved": done.n_tokens, "n_written": n_bytes}
        else:
            state, n_bytes = await self._service.on_worker(partial(files.load, name))
            done = await self._order(req, id, action, state)
            document |= {"n_restored": done.n_tokens, "n_read": n_bytes}
        spent_ms = round((self._clock.monotonic() - began) * 1000, 3)
        answer_json(resp, document | {"timings": {f"{action}_ms": spent_ms}})

    async def _order(self, req: Request, slot: int, action: str, state: SlotState | None = None) -> SlotDone:
        work = self._service.one_work(exchange_of(req).cleanup)
        done = await work.ask(lambda number: SlotOrder(number, slot, action, state))
        assert isinstance(done, SlotDone)
        return done


def _bad(name: str, expected: str) -> RequestError:
    return RequestError(f"cannot read {name!r}: {expected}", kind="bad-field", details={"param": name})
