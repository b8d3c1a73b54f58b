"""How much context, and how many layers on GPUs, where the configuration leaves that open (`fit`, on by default).

The largest context within a bound (`instance_spec.context_size`) is taken, and all layers; less of both, in this order,
where that would take more than there is: what the supervisor has set aside for this load (`reserved`, bytes by device),
or, where nobody keeps books, what the GPUs have free.

What a choice would take is told by a simulated load, in which a failing assertion of llama.cpp would end the process.
So a child of the role `measure` does it, and chooses (llamad.engine.fit): `fit-ctx` and `fit-target` mean the same
wherever a model is measured or loaded. It costs the time of the vocabulary, and is spared where the largest choice is
known to fit, because the supervisor has passed on what that takes (`maximum`, bytes by device).
"""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from llamad.child.instance_spec import context_size
from llamad.config.gguf import read_head
from llamad.engine import fit, llama
from llamad.engine.placement import NO_DEVICE
from llamad.engine.vocabulary import EngineSettings
from llamad.errors import LlamadError, OutOfMemoryError, ProtocolError
from llamad.wire.child import LINE_BYTES_MAX, Start, State, encode, parse_report

log = logging.getLogger(__name__)

MEASURE_MAX_S = 120.0
# Between the supervisor's measuring and this one the overhead of a process may differ by some pages. Measuring itself
# promises no more than 3 %.
TOLERANCE = 0.03
_COMMAND = (sys.executable, "-P", "-m", "llamad", "child")
_MIB = 1024 * 1024

Ask = Callable[[dict[str, Any]], Mapping[str, Any] | None]
"""From a start document to the payload of `measured`; None if there is none, the reason is in the log."""


def fitted(settings: EngineSettings, body: Mapping[str, Any], ask: Ask | None = None) -> EngineSettings:
    """The settings with all that was open chosen. `body` is the instance's start document.

    Raises LlamadError for a file that is no whole GGUF, OutOfMemoryError where not even the least fits.
    """
    trained = trained_context(Path(settings.path))
    whole = dataclasses.replace(settings, n_ctx=settings.n_ctx or context_size(trained))
    chosen = _choose(whole, body, ask or measured) if _is_open(whole, body) else whole
    if not settings.n_ctx:
        if trained > chosen.n_ctx:
            log.info("context: using %d of the %d tokens the model was trained with", chosen.n_ctx, trained)
        else:
            log.info("context: using %d tokens", chosen.n_ctx)
    return chosen


def trained_context(path: Path) -> int:
    """Tokens the model was trained with, by the file's head; 0 if it does not say. Raises LlamadError.

    For broken files it has better words than llama.cpp.
    """
    try:
        with path.open("rb") as file:
            head = read_head(file, path.stat().st_size)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LlamadError(f"cannot load {path}: {reason}", kind="load-failed") from error
    return head.whole(f"{head.text('general.architecture')}.context_length")


def measured(body: dict[str, Any]) -> Mapping[str, Any] | None:
    """Ask a measure child. It ends with this process, whatever happens: its stdin does."""
    with subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        watchdog = threading.Timer(MEASURE_MAX_S, child.kill)
        watchdog.start()
        try:
            assert child.stdin
            assert child.stdout
            child.stdin.write(encode(Start("measure", body)))
            child.stdin.flush()
            return _last_word(child.stdout)
        except (OSError, ProtocolError) as error:
            log.warning("cannot measure the model: %s", error)
            return None
        finally:
            watchdog.cancel()
            child.kill()


def _last_word(reports: IO[bytes]) -> Mapping[str, Any] | None:
    while line := reports.readline(LINE_BYTES_MAX + 1):
        report = parse_report(line)
        if isinstance(report, State) and report.state == "measured":
            return report.payload
        if isinstance(report, State) and report.state == "failed":
            log.warning("%s", report.payload.get("message"))
            return None
    log.warning("cannot measure the model: the process that should do it died")
    return None


def _is_open(settings: EngineSettings, body: Mapping[str, Any]) -> bool:
    options = _options(body)
    gpu = llama.supports_gpu() and settings.devices != (NO_DEVICE,)
    limited = body.get("reserved") is not None or gpu or "fit-target" in options
    layers_open = gpu and settings.n_gpu_layers < 0
    return limited and options.get("fit", "on") == "on" and (_context_open(options) or layers_open)


def _choose(whole: EngineSettings, body: Mapping[str, Any], ask: Ask) -> EngineSettings:
    reserved, options = body.get("reserved"), _options(body)
    maximum = body.get("maximum")
    if maximum and reserved is not None and "fit-target" not in options and _covers(reserved, maximum):
        return whole
    if reserved is None:
        options = {"fit-target": str(fit.FIT_TARGET_DEFAULT_BYTES // _MIB), **options}
    payload = ask(
        {
            "model": body.get("model"),
            "path": whole.path,
            "options": options,
            "reserved": reserved or {},
            **{name: body[name] for name in ("devices", "tensor_split") if body.get(name)},
        }
    )
    if payload is None:
        return _least(whole, options)
    choice = payload.get("chosen")
    if choice is None:
        choice = payload["minimum"]
        if not _covers(reserved or {}, _totals(choice), TOLERANCE):
            raise OutOfMemoryError(f"cannot load {whole.path}: {payload.get('reason')}")
        log.warning("nothing fits (%s): trying the smallest context", payload.get("reason"))
    log.info("fit: context %d, %d layers on GPUs", choice["n_ctx"], choice["n_gpu_layers"])
    return dataclasses.replace(whole, n_ctx=choice["n_ctx"], n_gpu_layers=choice["n_gpu_layers"])


def _least(whole: EngineSettings, options: Mapping[str, Any]) -> EngineSettings:
    """The smallest context, where nothing is known: if even that is too much, the load will tell."""
    n_streams = 1 if whole.kv_unified else whole.n_parallel
    asked = 0 if _context_open(options) else whole.n_ctx
    fit_ctx = int(options.get("fit-ctx", fit.FIT_CTX_DEFAULT))
    least, _ = fit.context_range(asked, whole.n_ctx, n_streams, fit=True, fit_ctx=fit_ctx)
    return dataclasses.replace(whole, n_ctx=least)


def _covers(reserved: Mapping[str, int], needed: Mapping[str, int], tolerance: float = 0.0) -> bool:
    """Whether bytes by device are within what is reserved; a device that is not in it is not limited."""
    return all(
        size <= reserved[device] * (1 + tolerance) for device, size in needed.items() if device in reserved
    )


def _totals(choice: Mapping[str, Any]) -> dict[str, int]:
    return {device: share["total"] for device, share in choice["bytes"].items()}


def _context_open(options: Mapping[str, Any]) -> bool:
    return "ctx-size" not in options


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (body.get("options") or {}).items() if value is not None}
