"""What instances live on, as one part of the supervisor: memory and its probes, measured needs, pins, and hangs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llamad.clock import Clock
from llamad.config.settings import ModelSpec, Settings
from llamad.core import actions
from llamad.core.events import PinAsked
from llamad.daemon.driver import Driver
from llamad.daemon.gpus import Gpus, find_nvml
from llamad.daemon.host_memory import HostMemory
from llamad.daemon.kernel import Kernel
from llamad.daemon.loop import Loop
from llamad.daemon.measuring import Measurer
from llamad.daemon.memory import Child, Memory
from llamad.daemon.monitor import Instance, Monitor
from llamad.daemon.needs import Needs
from llamad.daemon.pins import Pins
from llamad.daemon.spawn import Commands, Spawner
from llamad.daemon.stalls import Stalls, look_at_process
from llamad.daemon.statefile import StateFile
from llamad.observe.ring import LineRing

NO_TICKET = 0
"""Nobody waits for the answer; Tickets count from 1."""


class Resources:
    """Wires the parts. `instances` gives those that run; `note` takes a decision that the shell has made."""

    def __init__(
        self,
        *,
        loop: Loop,
        kernel: Kernel,
        clock: Clock,
        environ: Mapping[str, str],
        settings: Settings,
        driver: Driver,
        instances: Callable[[], list[Instance]],
        note: Callable[[actions.Note], None],
    ) -> None:
        self._loop = loop
        self._driver = driver
        self._instances = instances
        self._note = note
        self._configured = False
        self.pins = Pins(StateFile(settings.state_dir, "pins.json"), clock.wall)
        self._needs = Needs(StateFile(settings.state_dir, "needs.json"))
        gpus = Gpus(environ, find_nvml())
        self.memory = Memory(loop, HostMemory(), gpus, self._children, kernel.session_of, driver.post)
        self._stalls = Stalls(loop, instances, self._leases, driver.post, look_at_process)

    def measurer(
        self,
        spawner: Spawner,
        commands: Commands,
        specs: Callable[[str], ModelSpec | None],
        log_ring: Callable[[str], LineRing],
        monitor: Monitor,
    ) -> Measurer:
        """The one that measures for these books, and hears what instances then take."""
        post = self._driver.post
        found = Measurer(
            self._loop, spawner, commands, specs, self.memory, self._needs, log_ring, post, self._note
        )
        monitor.tell_ready(found.compare)
        return found

    def configured(self, settings: Settings) -> None:
        """New settings are in force, and the scheduler knows the models."""
        self.memory.read_regularly(settings.models_memory_margin_bytes is not None)
        self._stalls.limit(settings.stall_timeout_s)
        if not self._configured:
            self._configured = True
            for model, for_s in self.pins.holds().items():
                self._driver.post(PinAsked(NO_TICKET, model, pinned=True, for_s=for_s))

    def _children(self) -> list[Child]:
        return [Child(instance.child, instance.pid) for instance in self._instances() if instance.pid]

    def _leases(self) -> dict[int, int]:
        return {view.child: view.leases for view in self._driver.view().models if view.child}
