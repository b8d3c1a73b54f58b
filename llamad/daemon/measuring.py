"""Measure children: carries out Measure, from what was kept, or by a process that loads no weights.

    Measure --kept--> ChildMeasured, ChildExited                       (no process at all)
    Measure --spawned--> measured --> ChildMeasured, exit --> ChildExited
                     --> failed, silence, nonsense --> ChildFailed, exit --> ChildExited

What an instance then really takes is compared with what was measured. Where it is clearly more, the result is forgotten,
so that the model is measured anew the next time: a driver or a device may have changed in a way that no key tells.
"""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from llamad import __version__
from llamad.config.measure_key import measure_key
from llamad.config.settings import ModelSpec
from llamad.core.actions import Kill, Measure, Note
from llamad.core.events import (
    Amounts,
    ChildExited,
    ChildFailed,
    ChildMeasured,
    ChildNotSpawned,
    Event,
    Need,
    NeedDoubted,
)
from llamad.daemon.bodies import model_body, translated
from llamad.daemon.kernel import Exit
from llamad.daemon.loop import Loop, Timer
from llamad.daemon.memory import Memory
from llamad.daemon.monitor import TAIL_CHARS, TAIL_LINES, Instance
from llamad.daemon.needs import Measured, Needs, read_measured
from llamad.daemon.process import ChildProcess
from llamad.daemon.reports import device_totals
from llamad.daemon.spawn import Commands, Spawner, device_environment
from llamad.errors import ProtocolError
from llamad.observe.ring import LineRing
from llamad.wire.child import ChildLink, Start, State, encode, parse_report

log = logging.getLogger(__name__)

MEASURE_S_MAX = 120.0
MORE_THAN_MEASURED = 1.1
SURROUNDINGS_MAX = 1000


@dataclass(slots=True)
class Measuring:
    """One measure child."""

    child: int
    spec: ModelSpec
    key: str
    log_began_at: int
    """The number of the model's last log line from before it."""
    process: ChildProcess | None = None
    timer: Timer | None = None
    link: ChildLink = field(default_factory=ChildLink)


class Measurer:
    """`log_ring` gives a model's log, `note` takes a decision of ours."""

    def __init__(
        self,
        loop: Loop,
        spawner: Spawner,
        commands: Commands,
        specs: Callable[[str], ModelSpec | None],
        memory: Memory,
        needs: Needs,
        log_ring: Callable[[str], LineRing],
        post: Callable[[Event], None],
        note: Callable[[Note], None],
    ) -> None:
        self._loop = loop
        self._spawner = spawner
        self._commands = commands
        self._specs = specs
        self._memory = memory
        self._needs = needs
        self._log_ring = log_ring
        self._post = post
        self._note = note
        self._build = build()
        self._running: dict[int, Measuring] = {}
        self._seen: dict[str, list[tuple[str, int]]] = {}
        """GPUs that the last child with these surroundings has seen."""

    def running(self) -> list[Measuring]:
        return list(self._running.values())

    # ---- actions

    def measure(self, action: Measure) -> None:
        spec = self._specs(action.model)
        if spec is None:
            self._post(ChildNotSpawned(action.child, "the model is not configured any more"))
            return
        key = self._key(spec)
        kept = self._needs.get(key)
        if kept is not None and self._still_holds(spec, kept):
            self._tell(action.child, spec, kept)
            self._post(ChildExited(action.child, 0))
            return
        try:
            began_at = self._log_ring(spec.name).last_seq
            self._start(Measuring(action.child, spec, key, began_at))
        except (OSError, ProtocolError) as error:
            self._post(ChildNotSpawned(action.child, f"cannot measure {spec.name!r}: {error}"))

    def kill(self, action: Kill) -> None:
        measuring = self._running.get(action.child)
        if measuring is not None and measuring.process is not None:
            measuring.process.kill()

    def compare(self, instance: Instance) -> None:
        """An instance has loaded: did it take what was measured?"""
        held = device_totals(instance.ready_payload.get("bytes"))
        key = self._key(instance.spec)
        kept = self._needs.get(key)
        if held is None:
            return
        if kept is None:  # the GPU that was asked for was not there, or the devices are others by now
            self._post(NeedDoubted(instance.spec.name))
            return
        measured = instance.placement.maximum if instance.placement else kept.maximum
        over = {name: n for name, n in held.items() if n > MORE_THAN_MEASURED * measured.get(name, 0) and n}
        if over:
            self._needs.drop(key)
            self._post(NeedDoubted(instance.spec.name))
            numbers = {"held": held, "measured": dict(measured)}
            text = f"took more than was measured on {', '.join(over)}; it will be measured anew"
            self._note(Note("measured-wrong", instance.spec.name, text, numbers))

    # ---- the life of one

    def _start(self, measuring: Measuring) -> None:
        spec = measuring.spec
        measuring.process = self._spawner.spawn(
            self._commands.measure,
            "measure",
            environment=spec.env,
            on_report=lambda line: self._report_line(measuring, line),
            on_log=lambda line: self._log_line(spec, line),
            on_exit=lambda ended: self._exited(measuring, ended),
        )
        self._running[measuring.child] = measuring
        measuring.timer = self._loop.call_later(MEASURE_S_MAX, lambda: self._took_too_long(measuring))
        try:
            measuring.process.send(encode(Start("measure", model_body(spec))))
        except ProtocolError as error:
            self._give_up(measuring, str(error))

    def _log_line(self, spec: ModelSpec, line: bytes) -> None:
        self._log_ring(spec.name).append(line.decode("utf-8", "replace"))

    def _report_line(self, measuring: Measuring, line: bytes) -> None:
        try:
            report = parse_report(line)
            if report is None:
                self._log_line(measuring.spec, line)
                return
            measuring.link.receive(report)
            if isinstance(report, State):
                self._state_reported(measuring, report)
        except ProtocolError as error:
            self._give_up(measuring, str(error))

    def _state_reported(self, measuring: Measuring, report: State) -> None:
        if report.state == "failed":
            message = str(report.payload.get("message") or "cannot measure the model")
            self._post(
                ChildFailed(measuring.child, str(report.payload.get("kind") or "measure-failed"), message)
            )
        elif report.state == "measured":
            measured = read_measured(report.payload)
            if measured is None:
                raise ProtocolError("cannot use what was measured: it is not in bytes by device")
            self._needs.put(measuring.key, measured)
            self._remember(measuring.spec, measured)
            self._tell(measuring.child, measuring.spec, measured)

    def _tell(self, child: int, spec: ModelSpec, measured: Measured) -> None:
        if self._memory.learn(self._translated(spec, measured)):
            self._memory.read()
        if asks_for_gpu(spec) and not measured.gpus():
            text = "asks for layers on a GPU, but no GPU is visible: it will run on the host"
            self._note(Note("no-gpu", spec.name, text, {"n-gpu-layers": spec.options["n-gpu-layers"]}))
        self._post(ChildMeasured(child, self._need(spec, measured)))

    def _need(self, spec: ModelSpec, measured: Measured) -> Need:
        """By the names of the books."""

        def named(amounts: Amounts) -> dict[str, int]:
            return self._memory.to_books(amounts, spec.env)

        ways = tuple(translated(placement, named) for placement in measured.placements)
        return Need(named(measured.minimum), named(measured.maximum), ways)

    def _translated(self, spec: ModelSpec, measured: Measured) -> list[Mapping[str, object]]:
        names = [str(device.get("name")) for device in measured.devices]
        books = [next(iter(self._memory.to_books({name: 0}, spec.env))) for name in names]
        return [{**device, "name": name} for device, name in zip(measured.devices, books, strict=True)]

    def _took_too_long(self, measuring: Measuring) -> None:
        self._give_up(measuring, f"no result after {MEASURE_S_MAX:.0f} s")

    def _give_up(self, measuring: Measuring, why: str) -> None:
        message = f"cannot measure {measuring.spec.name!r}: {why}"
        self._post(ChildFailed(measuring.child, "measure-failed", message))
        self.kill(Kill(measuring.child))

    def _exited(self, measuring: Measuring, ended: Exit) -> None:
        if measuring.timer is not None:
            measuring.timer.cancel()
        tail = self._log_ring(measuring.spec.name).tail(TAIL_LINES, TAIL_CHARS, measuring.log_began_at)
        self._post(ChildExited(measuring.child, ended.exit_code, ended.signal, tail))
        self._running.pop(measuring.child, None)

    def _still_holds(self, spec: ModelSpec, kept: Measured) -> bool:
        """Not where GPUs were missed, for they may be there now, nor where another child has seen other ones since."""
        if asks_for_gpu(spec) and not kept.gpus():
            return False
        return self._seen.get(self._surroundings(spec), kept.gpus()) == kept.gpus()

    def _remember(self, spec: ModelSpec, measured: Measured) -> None:
        if len(self._seen) >= SURROUNDINGS_MAX:
            self._seen.clear()
        self._seen[self._surroundings(spec)] = measured.gpus()

    def _surroundings(self, spec: ModelSpec) -> str:
        """The same for all models that see the same devices."""
        return measure_key((), {}, self._environment(spec), (), "")

    def _environment(self, spec: ModelSpec) -> dict[str, str]:
        return {**device_environment(self._spawner.environment("measure")), **spec.env}

    def _key(self, spec: ModelSpec) -> str:
        return measure_key(
            spec.files,
            spec.options,
            self._environment(spec),
            self._memory.gpu_sizes(),
            self._build,
        )


def asks_for_gpu(spec: ModelSpec) -> bool:
    """Somebody has said so; without a word it is taken as it comes."""
    layers = spec.options.get("n-gpu-layers", 0)
    return isinstance(layers, int) and layers != 0


def build() -> str:
    """What does the measuring."""
    try:
        library = importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        library = ""
    return f"llamad {__version__}, llama-cpp-python {library}"
