"""Sockets that the daemon listens on, and the lock that keeps a second copy away from them.

A Unix socket whose owner died is still in the file system: it is stale when nobody answers a connect, and then it is
replaced. One that answers belongs to somebody, and is left alone.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from llamad.daemon.kernel import Kernel
from llamad.errors import AddressTakenError, ConfigError

BACKLOG = 4096
OPERATORS_GROUP = "llamad"
# Nobody's mistake: a predecessor still holds it, or the interface is not up yet.
_TAKEN = frozenset((errno.EADDRINUSE, errno.EADDRNOTAVAIL))


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket and how it is spelled, with the port that port 0 came to.

    `owned_path`: the file to remove at the end, "" for sockets that have none or that systemd owns.
    """

    name: str
    socket: socket.socket
    owned_path: str = ""

    def close(self) -> None:
        self.socket.close()
        if self.owned_path and os.path.lexists(self.owned_path):
            os.unlink(self.owned_path)


@dataclass(frozen=True, slots=True)
class SocketRights:
    """Of public Unix sockets. `group` "": the daemon's own."""

    mode: int = 0o660
    group: str = ""

    def gid(self) -> int:
        """Raises ConfigError for a group that does not exist."""
        try:
            return grp.getgrnam(self.group).gr_gid if self.group else -1
        except KeyError:
            raise ConfigError(f"cannot use the socket group {self.group!r}: there is no such group") from None


def listen(kernel: Kernel, name: str, rights: SocketRights = SocketRights()) -> Listener:
    """Listen on `HOST:PORT`, `[V6]:PORT` or `unix:/path`. Raises ConfigError."""
    if name.startswith("unix:"):
        path = name.removeprefix("unix:")
        return Listener(name, listen_at(kernel, path, rights.mode, rights.gid()), owned_path=path)
    host, _, port = name.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = kernel.listen_tcp(family, (str(address[0]), int(address[1])), BACKLOG)
    except (OSError, ValueError) as error:
        raise _cannot_listen(name, error) from error
    return Listener(spelled(listener), listener)


def open_listeners(
    kernel: Kernel,
    names: Sequence[str],
    inherited: Sequence[socket.socket],
    rights: SocketRights = SocketRights(),
) -> list[Listener]:
    """The public listeners: those handed over by systemd, or else `names`. All or none; raises ConfigError."""
    if inherited:
        return [Listener(spelled(listener), listener) for listener in inherited]
    listeners: list[Listener] = []
    try:
        for name in names:
            listeners.append(listen(kernel, name, rights))
    except ConfigError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def listen_at(kernel: Kernel, path: str, mode: int, gid: int = -1) -> socket.socket:
    """Listen on a Unix socket, in place of a stale one. Raises ConfigError."""
    try:
        _remove_stale(path)
        return kernel.listen_unix(path, mode, BACKLOG, gid)
    except OSError as error:
        raise _cannot_listen(f"unix:{path}", error) from error


def _cannot_listen(name: str, error: OSError | ValueError) -> ConfigError:
    number, words = (error.errno, error.strerror) if isinstance(error, OSError) else (None, "")
    kind = AddressTakenError if number in _TAKEN else ConfigError
    return kind(f"cannot listen on {name}: {words or error}")


def spelled(listener: socket.socket) -> str:
    """The address of a listening socket as `listen` takes it."""
    address = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{address}"
    host = f"[{address[0]}]" if listener.family == socket.AF_INET6 else address[0]
    return f"{host}:{address[1]}"


def _remove_stale(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(errno.EEXIST, "a file that is no socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        outcome = probe.connect_ex(path)
    if outcome != errno.ECONNREFUSED:
        raise OSError(errno.EADDRINUSE, "another process listens there")
    os.unlink(path)


def operators_gid() -> int:
    """The group whose members may use the admin socket, -1 where it does not exist."""
    try:
        return grp.getgrnam(OPERATORS_GROUP).gr_gid
    except KeyError:
        return -1


def may_give_to(gid: int) -> bool:
    """Whether this process may hand files to that group."""
    return gid != -1 and (os.geteuid() == 0 or gid in os.getgroups() or gid == os.getegid())


def make_runtime_dir(path: str) -> None:
    """Root's is public (its sockets have their own rights), a user's is private. Raises ConfigError.

    One that is there already must be nobody else's: whoever may rename a socket in it can put his own in its place, and
    the default of a user without a session, /tmp/llamad-UID, is a name that anybody can take first.
    """
    try:
        if not os.path.isdir(path):
            os.makedirs(path)
            # Not by makedirs' mode, which the umask cuts.
            os.chmod(path, 0o755 if os.geteuid() == 0 else 0o700)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"user {os.geteuid()} may not write there")
        found = os.stat(path)
    except OSError as error:
        raise ConfigError(f"cannot use the runtime directory {path}: {error.strerror or error}") from error
    if found.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"cannot trust the runtime directory {path}: it is user {found.st_uid}'s")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise ConfigError(f"cannot trust the runtime directory {path}: every user may change it (chmod 755)")


class InstanceLock:
    """One supervisor a runtime directory. The kernel gives the lock back however its holder ends."""

    def __init__(self, runtime_dir: str) -> None:
        self._path = os.path.join(runtime_dir, "llamad.lock")
        self._fd = -1

    def take(self) -> None:
        """Raises ConfigError that names the holder."""
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise ConfigError(f"cannot open {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            self.release()
            directory = os.path.dirname(self._path)
            raise ConfigError(f"cannot start: llamad already runs in {directory} (pid {holder})") from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
