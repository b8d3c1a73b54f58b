"""The arbiter: the process that the supervisor starts, and that starts and replaces the workers.

It is a process of its own because gunicorn's arbiter takes all signals and reaps all children of whatever it runs in.
The listeners are the supervisor's: they come by LISTEN_FDS, which, unlike binding by file descriptor number, leaves a
Unix socket's path in place at the end, so that a second front can take over from a first.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import sys
from typing import Any, NoReturn

from gunicorn import util
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from llamad.errors import ProtocolError
from llamad.observe.log import set_up
from llamad.proxy.app import Front, build
from llamad.proxy.process import die_with_parent, raise_open_files_limit, set_title
from llamad.proxy.worker import STOP_SIGNALS, FrontWorker
from llamad.wire.proxy import LINE_BYTES_MAX, LISTENER_FD_FIRST, ProxySettings, decode

STDIN = 0
# A worker that has not run its loop for so long is stuck, and is replaced.
HEARTBEAT_TIMEOUT_S = 60
# Files of a worker that are no connection: libraries, pipes, listeners, idle upstream connections.
OTHER_FILES_MAX = 512


class FrontLog(Logger):  # type: ignore[misc]
    """gunicorn's log as a part of ours. Its chronicle is of no interest to operators, its warnings are."""

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self._access_log_enabled = False
        self.error_log = logging.getLogger("llamad.proxy.gunicorn")

    def info(self, msg: str, *args: Any, **kwargs: Any) -> None:
        self.error_log.debug(msg, *args, **kwargs)

    def debug(self, msg: str, *args: Any, **kwargs: Any) -> None:
        """Nothing: it says the path of each request, and who knows what clients write there."""


class FrontApplication(BaseApplication):  # type: ignore[misc]
    """gunicorn's configuration, from ours."""

    def __init__(self, settings: ProxySettings, supervisor_pid: int, open_files_max: int) -> None:
        self.settings = settings
        self.supervisor_pid = supervisor_pid
        # A relayed request holds two files: the client's connection and the upstream's.
        self.connections_max = max(1, min(settings.connections_max, (open_files_max - OTHER_FILES_MAX) // 2))
        super().__init__()

    def load_config(self) -> None:
        settings = self.settings
        for name, value in {
            "workers": settings.workers,
            "worker_class": FrontWorker,
            "asgi_loop": "uvloop",
            "http_parser": "fast",
            "asgi_lifespan": "on",
            "asgi_disconnect_grace_period": 0,
            "timeout": HEARTBEAT_TIMEOUT_S,
            "graceful_timeout": settings.graceful_timeout_s,
            "keepalive": settings.keepalive_s,
            "max_requests": 0,
            "websocket_max_message_size": settings.websocket_message_bytes,
            "preload_app": True,
            "control_socket_disable": True,
            "worker_tmp_dir": "/dev/shm",
            # ASGI has names as they came, so that none of them can be taken for another.
            "header_map": "dangerous",
            "forwarded_allow_ips": "127.0.0.1,::1",
            "accesslog": None,
            "logger_class": FrontLog,
        }.items():
            self.cfg.set(name, value)

    def load(self) -> Front:
        return build(self.settings)

    def run(self) -> None:
        FrontArbiter(self).run()


class FrontArbiter(Arbiter):  # type: ignore[misc]
    """gunicorn's arbiter as a child of the supervisor."""

    def wait_for_signals(self, timeout: float = 1.0) -> list[int]:
        signals: list[int] = super().wait_for_signals(timeout)
        return signals if not _stdin_ended() else [*signals, signal.SIGTERM]

    def handle_term(self) -> None:
        """Drain, unless the supervisor is dead: then the instances are, too, and there is nothing to drain for."""
        if os.getppid() != self.app.supervisor_pid:
            self.handle_quit()
        super().handle_term()

    def spawn_worker(self) -> int:
        """A stop signal between the fork and the worker's own handlers waits instead of reaching the arbiter's."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        # What has been imported stays, so no worker need look through it again, and thereby make pages its own.
        gc.freeze()
        try:
            return int(super().spawn_worker())
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def main() -> NoReturn:
    """Life of the arbiter; `llamad.wire.proxy` has the contract."""
    supervisor_pid = os.getppid()
    # Not TERM: a drain may take minutes, and it would outlive the supervisor.
    die_with_parent(supervisor_pid, signal.SIGQUIT)
    try:
        settings = decode(_read_line())
        _check_listeners(settings.listeners)
    except ProtocolError as error:
        sys.exit(f"error: {error.message}")
    set_up(settings.log_level, os.environ)
    set_title("arbiter")
    # gunicorn writes titles of its own with a fixed prefix; ours name the role.
    util._setproctitle = lambda title: None
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.environ["LISTEN_FDS"] = str(settings.listeners)
    FrontApplication(settings, supervisor_pid, raise_open_files_limit()).run()
    sys.exit(0)


def _read_line() -> bytes:
    """The settings line. Read unbuffered: what follows it is only ever the end of the pipe."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(STDIN, LINE_BYTES_MAX)
        line += data
        if not data or len(line) > LINE_BYTES_MAX:
            raise ProtocolError("cannot read the front's settings: no whole line on stdin")
    return line


def _check_listeners(count: int) -> None:
    if count < 1:
        raise ProtocolError("cannot serve without a listener")
    for fd in range(LISTENER_FD_FIRST, LISTENER_FD_FIRST + count):
        try:
            os.fstat(fd)
        except OSError:
            raise ProtocolError(f"cannot use {count} listeners: file descriptor {fd} is not open") from None


def _stdin_ended() -> bool:
    readable, _, _ = select.select([STDIN], [], [], 0)
    return bool(readable) and not os.read(STDIN, LINE_BYTES_MAX)
