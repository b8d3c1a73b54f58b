"""The system calls of the daemon, as one small class, so that a test can make the n-th of them fail.

Each method is one call or the shortest sequence that has no useful middle; none waits. Errors are `OSError`, as the
kernel gives them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import struct
from dataclasses import dataclass

_INHERITED_FD_FIRST = 3
_SAFE_FD_FIRST = 64
_SO_PEERGROUPS = 59
_UCRED = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: exactly one of the two is set."""

    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a Unix socket."""

    pid: int
    uid: int
    gids: tuple[int, ...]


class Kernel:
    """Linux 5.4 or later."""

    # ---- processes

    def spawn(
        self,
        argv: list[str],
        environment: dict[str, str],
        stdio: tuple[int, int, int],
        inherit: tuple[int, ...] = (),
    ) -> int:
        """The pid of a new process in a session of its own, with `stdio` as 0, 1, 2 and `inherit` as 3, 4, ...

        Every other descriptor of ours is close-on-exec. Raises for a program that cannot be executed.
        """
        sources = (*stdio, *inherit)
        # Above the targets, or a dup2 could overwrite the source of a later one.
        first = max(_SAFE_FD_FIRST, _INHERITED_FD_FIRST + len(inherit))
        moved: list[int] = []
        try:
            for fd in sources:
                moved.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, first))
            actions = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(moved)]
            return os.posix_spawn(
                argv[0],
                argv,
                environment,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1),
            )
        finally:
            for fd in moved:
                os.close(fd)

    def pidfd_open(self, pid: int) -> int:
        return os.pidfd_open(pid)

    def send_signal(self, pidfd: int, number: int) -> None:
        """Harmless when the process is gone already."""
        try:
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            return

    def kill_group(self, pgid: int) -> None:
        """SIGKILL to a process group whose leader is still there, if only as a zombie."""
        try:
            os.killpg(pgid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return

    def reap(self, pidfd: int) -> Exit:
        """How the ended process of `pidfd` ended, once. Its pidfd must be readable: this does not wait for it."""
        try:
            result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        except ChildProcessError:
            # Somebody else has waited for it; how it ended is lost.
            return Exit(exit_code=255)
        if result is None:
            return Exit(exit_code=255)
        if result.si_code == os.CLD_EXITED:
            return Exit(exit_code=result.si_status)
        return Exit(signal=result.si_status)

    def kill_and_reap(self, pid: int) -> None:
        """End a process that has no pidfd. It has only just been made, so the wait is over at once."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def session_of(self, pid: int) -> int:
        """The session that a process is in, 0 when it is gone or in another pid namespace."""
        try:
            return os.getsid(pid)
        except OSError:
            return 0

    # ---- pipes

    def pipe(self) -> tuple[int, int]:
        """(read end, write end), both close-on-exec and blocking."""
        return os.pipe2(os.O_CLOEXEC)

    def set_nonblocking(self, fd: int) -> None:
        os.set_blocking(fd, False)

    def read(self, fd: int, limit_bytes: int) -> bytes | None:
        """What is there, `b""` at the end of the stream, None when nothing is there now."""
        try:
            return os.read(fd, limit_bytes)
        except BlockingIOError:
            return None

    def write(self, fd: int, data: bytes) -> int:
        """Bytes taken, 0 when the pipe is full. Raises BrokenPipeError when nobody reads."""
        try:
            return os.write(fd, data)
        except BlockingIOError:
            return 0

    def close(self, fd: int) -> None:
        os.close(fd)

    # ---- sockets

    def listen_tcp(self, family: int, address: tuple[str, int], backlog: int) -> socket.socket:
        """A listening, non-blocking TCP socket."""
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(backlog)
        except BaseException:
            listener.close()
            raise
        return listener

    def listen_unix(self, path: str, mode: int, backlog: int, gid: int = -1) -> socket.socket:
        """A listening, non-blocking Unix socket with these rights from its first moment on."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            previous = os.umask(0o777)
            try:
                listener.bind(path)
            finally:
                os.umask(previous)
            # The service's sandbox forbids chown, also where it would change nothing.
            if gid not in (-1, os.stat(path).st_gid):
                os.chown(path, -1, gid)
            os.chmod(path, mode)
            listener.listen(backlog)
        except BaseException:
            listener.close()
            raise
        return listener

    def accept(self, listener: socket.socket) -> socket.socket | None:
        """A non-blocking connection, or None when nobody waits. Raises when descriptors or memory run out."""
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        connection.setblocking(False)
        return connection

    def connect(self, family: int, address: str | tuple[str, int]) -> socket.socket:
        """A non-blocking connection on its way. Raises OSError when it is refused at once."""
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        code = connection.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            connection.close()
            raise OSError(code, os.strerror(code))
        return connection

    def recv(self, connection: socket.socket, limit_bytes: int) -> bytes | None:
        """As `read`; a connection that was reset has ended."""
        try:
            return connection.recv(limit_bytes)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT):
                return b""
            raise

    def send(self, connection: socket.socket, data: bytes | memoryview) -> int:
        """Bytes taken, 0 when the buffer is full. Raises OSError when the peer is gone."""
        try:
            return connection.send(data)
        except BlockingIOError:
            return 0

    def peer(self, connection: socket.socket) -> Peer:
        """Credentials that the kernel noted when the peer connected."""
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, gid = _UCRED.unpack(data)
        return Peer(pid, uid, (gid, *self._peer_groups(connection)))

    def _peer_groups(self, connection: socket.socket) -> tuple[int, ...]:
        try:
            data = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
        except OSError:
            return ()
        return struct.unpack(f"{len(data) // 4}I", data)
