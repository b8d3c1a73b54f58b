"""From a command line to a running supervisor, and from its end to an exit status."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Mapping

from llamad.clock import SystemClock
from llamad.config.check import render
from llamad.config.load import UsageError, load_settings
from llamad.config.settings import Settings
from llamad.daemon.kernel import Kernel
from llamad.daemon.listeners import SocketRights, open_listeners
from llamad.daemon.spawn import Commands
from llamad.daemon.supervisor import Given, Supervisor
from llamad.daemon.systemd import listen_sockets
from llamad.errors import ConfigError
from llamad.exit_status import EXIT_INTERNAL
from llamad.observe import log as logs
from llamad.observe.ring import LineRing

log = logging.getLogger(__name__)

DESCRIPTORS_WANTED = 65536
ADMIN_SOCKET_NAME = "admin"
"""`FileDescriptorName=` of a socket unit that is not to be served to the public."""


def run(argv: list[str], environ: Mapping[str, str], commands: Commands | None = None) -> int:
    """Serve until told to stop. Raises UsageError and ConfigError before anything has been started.

    `commands` replaces the programs that children run; only tests have any.
    """
    keep_descriptors_apart()
    raise_descriptor_limit()
    # First, while the numbers from 3 on still are what systemd put there.
    inherited = listen_sockets(environ, os.getpid())
    settings = _settings(argv, environ)
    ring = LineRing()
    logs.set_up(settings.log_level, environ, ring)
    kernel = Kernel()
    public = [listener for name, listener in inherited if name != ADMIN_SOCKET_NAME]
    supervisor = Supervisor(
        Given(
            settings=settings,
            argv=argv,
            environ=environ,
            clock=SystemClock(),
            kernel=kernel,
            commands=commands or Commands(),
            log_ring=ring,
            listeners=open_listeners(
                kernel,
                settings.listeners,
                public,
                SocketRights(settings.socket_mode, settings.socket_group),
            ),
            admin_socket=dict(inherited).get(ADMIN_SOCKET_NAME),
        )
    )
    try:
        return supervisor.run()
    except ConfigError:
        raise
    except Exception:
        log.exception("cannot go on: a bug in llamad")
        return EXIT_INTERNAL


def keep_descriptors_apart() -> None:
    """Children get what is meant for them, however we were started.

    With 0, 1 or 2 closed the next file opened would become one of them; and what our own parent left open for us is not
    for our children.
    """
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        os.set_inheritable(fd, True)
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            _close_on_exec(int(name))


def raise_descriptor_limit() -> None:
    """A shell's 1024 would be the number of streams, too: two descriptors each in a worker. Children inherit the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _close_on_exec(fd: int) -> None:
    try:
        os.set_inheritable(fd, False)
    except OSError:
        return  # the one that listed the directory


def _settings(argv: list[str], environ: Mapping[str, str]) -> Settings:
    """The daemon's own options. Every fatal problem is in the error's message."""
    for word in argv:
        if not _is_utf8(word):
            raise UsageError(f"cannot use the argument {word!a}: it is not UTF-8")
    settings, problems = load_settings(argv, environ)
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        raise ConfigError(render(fatal).rstrip("\n"))
    return settings


def _is_utf8(word: str) -> bool:
    """Other bytes come as lone surrogates, which would pass here, but not the JSON on the way to a scan."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
