"""The role `measure`: what a model would take on each device, without loading its weights.

    start document -> measuring -> measured, exit

The start document is an instance's (`model`, `path`, `options`, `devices`, `tensor_split`; no token), plus optionally `reserved`:
bytes by device that the books have set aside for the model. The payload of `measured`:

    {"devices": [{"name", "description", "kind", "total_bytes", "free_bytes"}],
     "fixed": whether there is nothing to choose,
     "minimum": CHOICE, "maximum": CHOICE,
     "placements": [{"devices": [DEVICE, ...], "split": [share, ...], "minimum": CHOICE, "maximum": CHOICE}],
     "chosen": CHOICE or null, "reason": why there is none     (both only with `reserved`)}
    CHOICE = {"n_ctx", "n_gpu_layers", "bytes": {DEVICE: {"weights", "kv", "compute", "projector", "draft", "adapters",
              "prompts", "rules", "overhead", "total"}}}

`placements` are the ways to put the model on GPUs: all of it on one, for each, and split over all. It is there without
`reserved`, and where there is more than one GPU and nobody has said where the model shall be (`engine.placement`); split
is also what happens if nobody chooses, and what `minimum` and `maximum` are about. `minimum` has the smallest context that the model may run with, `maximum` the one that it gets where there is room; both
have all the layers on GPUs that were asked for. `chosen` is what fits into `reserved` (llamad.engine.fit), which may
have fewer layers. DEVICE is `host` or ggml's name of a GPU.

This module imports what an instance imports on purpose: an idle process of this role then has the anonymous memory
of an instance but for the buffers, and the overhead need not be guessed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import llamad.child.instance  # noqa: F401
from llamad.child.instance_spec import context_size, parse_spec
from llamad.child.link import Link
from llamad.engine import breakdown, fit, memory, placement
from llamad.engine.breakdown import HOST, Device, Share
from llamad.engine.fit import Choice, Range
from llamad.engine.samplers import RULES_BYTES_PER_TOKEN
from llamad.engine.vocabulary import EngineSettings
from llamad.errors import LlamadError
from llamad.observe import log as logs
from llamad.wire.child import State

# What serving adds to a loaded model: stacks of threads, the HTTP server, llama.cpp's scratch memory; and the engine's
# array of candidates, ids beside them (12 + 4 bytes a token of the vocabulary).
_SERVING_BYTES = 2 << 20
_SERVING_BYTES_PER_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure. `targets_bytes` and `reserved` as `fit.limits_for` takes them."""

    engine: EngineSettings
    prompts_bytes: int
    ctx_open: bool
    fit: bool
    fit_ctx: int
    targets_bytes: tuple[int, ...] | None
    reserved: dict[str, int] | None


def run(link: Link, body: Mapping[str, Any]) -> int:
    """Measure once and report; the exit status. Raises LlamadError (`measure-failed`) where it cannot."""
    logs.set_up("info", os.environ)
    link.on_finish(lambda: os._exit(0))
    link.send(State("measuring"))
    try:
        payload = measure(parse_request(body))
    except LlamadError as error:
        raise LlamadError(error.message, kind="measure-failed") from error
    link.send(State("measured", payload))
    return 0


def parse_request(body: Mapping[str, Any]) -> Request:
    """Raises LlamadError for a document that no supervisor should have sent."""
    # An instance's document without the parts that serving needs.
    asked = {name: body.get(name) for name in ("path", "options", "devices", "tensor_split")}
    spec = parse_spec({**asked, "token": "none"})
    options = {name: value for name, value in (body.get("options") or {}).items() if value is not None}
    try:
        return Request(
            engine=spec.engine,
            prompts_bytes=spec.keeping.ram_bytes,
            ctx_open="ctx-size" not in options,
            fit=options.get("fit", "on") == "on",
            fit_ctx=int(options.get("fit-ctx", fit.FIT_CTX_DEFAULT)),
            targets_bytes=fit.parse_targets(options["fit-target"]) if "fit-target" in options else None,
            reserved=_reserved(body.get("reserved")),
        )
    except (TypeError, ValueError) as error:
        raise LlamadError(f"cannot measure: {error}", kind="bad-start") from error


def measure(request: Request) -> dict[str, Any]:
    """The payload of `measured`. Raises LlamadError."""
    devices = memory.devices()
    with memory.Prober(request.engine) as prober:
        costs = _Costs(prober, request)
        among = range_of(request, prober.n_ctx_train, prober.n_layers)
        payload = {
            "devices": [asdict(device) for device in devices],
            "fixed": among.fixed,
            **costs.ends(among),
        }
        if request.reserved is not None:
            used = [device for device in devices if device.kind == HOST or device.name in prober.placed.names]
            return {**payload, **_choose(request, among, used, costs)}
    if placement.is_fixed(request.engine) or len(prober.placed.names) < 2 or not among.n_gpu_layers:
        return payload
    split = {"devices": list(prober.placed.names), "split": list(prober.placed.split), **costs.ends(among)}
    alone = [_alone(request, name, among, prober.overhead) for name in prober.placed.names]
    return {**payload, "placements": [*alone, split]}


def _alone(request: Request, name: str, among: Range, overhead: dict[str, int] | None) -> dict[str, Any]:
    """All of the model on one device."""
    with memory.Prober(dataclasses.replace(request.engine, devices=(name,)), overhead) as prober:
        return {"devices": [name], "split": [], **_Costs(prober, request).ends(among)}


def range_of(request: Request, n_ctx_train: int, n_layers: int) -> Range:
    """What is open in a request, for a model with `n_layers` layers that can be on GPUs (0 where there is none)."""
    engine = request.engine
    n_streams = 1 if engine.kv_unified else engine.n_parallel
    default = context_size(n_ctx_train)
    asked = 0 if request.ctx_open else engine.n_ctx or default
    n_ctx_min, n_ctx_max = fit.context_range(asked, default, n_streams, request.fit, request.fit_ctx)
    layers_open = request.fit and engine.n_gpu_layers < 0 and n_layers > 0
    n_gpu_layers = n_layers if engine.n_gpu_layers < 0 else min(engine.n_gpu_layers, n_layers)
    return Range(n_ctx_min, n_ctx_max, n_gpu_layers, layers_open, n_streams)


class _Costs:
    """Probes, with what serving adds; each once."""

    def __init__(self, prober: memory.Prober, request: Request) -> None:
        self._prober = prober
        self._serving = Share(
            prompts=request.prompts_bytes if prober.generates else 0,
            rules=RULES_BYTES_PER_TOKEN * prober.n_vocab if prober.generates else 0,
            overhead=_SERVING_BYTES + _SERVING_BYTES_PER_TOKEN * prober.n_vocab,
        )
        self._known: dict[tuple[int, int], dict[str, Share]] = {}

    def shares(self, n_ctx: int, n_gpu_layers: int) -> dict[str, Share]:
        known = self._known.get((n_ctx, n_gpu_layers))
        if known is None:
            known = self._prober.probe(n_ctx, n_gpu_layers)
            known[HOST] += self._serving
            self._known[n_ctx, n_gpu_layers] = known
        return known

    def totals(self, n_ctx: int, n_gpu_layers: int) -> dict[str, int]:
        return breakdown.totals(self.shares(n_ctx, n_gpu_layers))

    def ends(self, among: Range) -> dict[str, Any]:
        return {
            "minimum": self.document(among.n_ctx_min, among.n_gpu_layers),
            "maximum": self.document(among.n_ctx_max, among.n_gpu_layers),
        }

    def document(self, n_ctx: int, n_gpu_layers: int) -> dict[str, Any]:
        shares = self.shares(n_ctx, n_gpu_layers)
        return {"n_ctx": n_ctx, "n_gpu_layers": n_gpu_layers, "bytes": breakdown.to_document(shares)}


def _choose(request: Request, among: Range, devices: list[Device], costs: _Costs) -> dict[str, Any]:
    limits = fit.limits_for(devices, request.reserved, request.targets_bytes if request.fit else None)
    found = fit.choose(costs.totals, among, limits)
    if isinstance(found, Choice):
        return {"chosen": costs.document(found.n_ctx, found.n_gpu_layers), "reason": ""}
    return {"chosen": None, "reason": found.reason}


def _reserved(document: Any) -> dict[str, int] | None:
    if document is None:
        return None
    if not isinstance(document, dict) or not all(type(size) is int for size in document.values()):
        raise ValueError(f"reserved is {document!r}, expected bytes by device")
    return document
