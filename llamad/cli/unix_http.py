"""requests over a Unix socket: the adapter that replaces TCP below an ordinary requests session."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
import stat
from pathlib import Path
from typing import Any

from requests import PreparedRequest
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

from llamad.cli.exits import NotAllowedError, UnreachableError

GROUP = "llamad"
"""The group that the packaged unit gives the socket to; named when the socket itself cannot be looked at."""


class UnixConnection(HTTPConnection):
    """One connection to a Unix socket. The host of the URL means nothing."""

    def __init__(self, socket_path: Path, **options: Any) -> None:
        super().__init__("localhost", **options)
        self._socket_path = socket_path

    def _new_conn(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self.timeout if isinstance(self.timeout, int | float) else None)
        try:
            connection.connect(str(self._socket_path))
        except OSError as error:
            connection.close()
            # Not an OSError on purpose: urllib3 passes it through instead of burying the errno in its own tree.
            raise connect_error(self._socket_path, error) from error
        return connection


class UnixPool(HTTPConnectionPool):
    """Connections to one Unix socket."""

    def __init__(self, socket_path: Path) -> None:
        super().__init__("localhost", maxsize=2)
        self._socket_path = socket_path

    def _new_conn(self) -> HTTPConnection:
        return UnixConnection(self._socket_path, timeout=self.timeout.connect_timeout)


class UnixAdapter(HTTPAdapter):
    """Sends every request of the prefix it is mounted on to one Unix socket."""

    def __init__(self, socket_path: Path) -> None:
        super().__init__(max_retries=0)
        self._pool = UnixPool(socket_path)

    def get_connection_with_tls_context(
        self, request: PreparedRequest, verify: Any, proxies: Any = None, cert: Any = None
    ) -> HTTPConnectionPool:
        return self._pool

    def close(self) -> None:
        self._pool.close()
        super().close()


def connect_error(socket_path: Path, error: OSError) -> UnreachableError | NotAllowedError:
    """What a failed connect means to the person who has to do something about it."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return NotAllowedError(f"cannot use {socket_path}: permission denied; {_who_may(socket_path)}")
    why = {errno.ENOENT: "no such socket", errno.ECONNREFUSED: "nobody listens there"}.get(
        error.errno or 0, error.strerror or str(error)
    )
    return UnreachableError(
        f"cannot reach llamad at {socket_path}: {why}; start it with 'systemctl start llamad' (or run 'llamad'), "
        "or name another socket with --socket or LLAMAD_SOCKET"
    )


def _who_may(socket_path: Path) -> str:
    try:
        found = os.stat(socket_path)
    except OSError:
        return _join_group(GROUP)
    if found.st_mode & stat.S_IWGRP:
        return _join_group(_group_name(found.st_gid))
    return f"only the user {_user_name(found.st_uid)} may"


def _join_group(group: str) -> str:
    user = _user_name(os.geteuid())
    return f"only members of the group {group} may: 'sudo usermod -aG {group} {user}', then log in again"


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
