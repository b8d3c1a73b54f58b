"""Listeners, the lock, and what systemd hands over and hears."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from llamad.daemon.kernel import Kernel
from llamad.daemon.listeners import InstanceLock, listen, listen_at, make_runtime_dir, open_listeners
from llamad.daemon.loop import Loop
from llamad.daemon.systemd import Notifier, Watchdog, watchdog_interval_s
from llamad.errors import ConfigError
from tests.daemon.parts import HandClock, open_fds


def test_port_zero_is_spelled_out() -> None:
    listener = listen(Kernel(), "127.0.0.1:0")
    port = listener.socket.getsockname()[1]
    assert listener.name == f"127.0.0.1:{port}"
    assert not listener.socket.getblocking()
    listener.close()


def has_ipv6_loopback() -> bool:
    addresses = Path("/proc/net/if_inet6")
    return addresses.exists() and f"{1:032x} " in addresses.read_text()


def test_ipv6_in_brackets() -> None:
    if not has_ipv6_loopback():
        with pytest.raises(ConfigError, match=r"cannot listen on \[::1\]:0: "):
            listen(Kernel(), "[::1]:0")
        return
    listener = listen(Kernel(), "[::1]:0")
    assert listener.name.startswith("[::1]:")
    listener.close()


def test_all_listeners_or_none(tmp_path: Path) -> None:
    before = open_fds()
    path = tmp_path / "x.sock"
    with pytest.raises(ConfigError, match="cannot listen on"):
        open_listeners(Kernel(), ["127.0.0.1:0", f"unix:{path}", "999.0.0.1:1"], [])
    assert open_fds() == before
    assert not path.exists()


def test_sockets_from_systemd_take_the_place_of_names() -> None:
    given = socket.create_server(("127.0.0.1", 0))
    listeners = open_listeners(Kernel(), ["127.0.0.1:1"], [given])
    assert [listener.name for listener in listeners] == [f"127.0.0.1:{given.getsockname()[1]}"]
    given.close()


def test_a_unix_socket_has_its_rights_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    previous = os.umask(0o077)
    try:
        listener = listen_at(Kernel(), str(path), 0o660)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    listener.close()


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    listen_at(Kernel(), path, 0o600).close()
    listener = listen_at(Kernel(), path, 0o600)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    listener.close()


def test_a_live_socket_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    first = listen_at(Kernel(), path, 0o600)
    with pytest.raises(ConfigError, match="another process listens there"):
        listen_at(Kernel(), path, 0o600)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    first.close()


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="no socket"):
        listen_at(Kernel(), str(path), 0o600)
    assert path.read_text() == "precious"


def test_the_lock_names_its_holder_and_is_given_back(tmp_path: Path) -> None:
    first, second = InstanceLock(str(tmp_path)), InstanceLock(str(tmp_path))
    first.take()
    with pytest.raises(ConfigError, match=rf"already runs in {tmp_path} \(pid {os.getpid()}\)"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_a_runtime_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use the runtime directory"):
        make_runtime_dir(str(tmp_path / "file" / "run"))


def test_a_runtime_directory_that_others_may_change_is_not_trusted(tmp_path: Path):
    """They could put a socket of their own in the place of ours."""
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match=r"every user may change it"):
        make_runtime_dir(str(tmp_path))
    tmp_path.chmod(0o1777)
    make_runtime_dir(str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_runtime_directory_of_somebody_else_is_not_trusted(tmp_path: Path):
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(ConfigError, match="it is user 12345's"):
        make_runtime_dir(str(tmp_path))


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "77"}, 15.0),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_the_watchdog_is_petted_twice_as_often_as_demanded(
    environ: dict[str, str], interval: float | None
) -> None:
    assert watchdog_interval_s(environ, 77) == interval


def test_what_systemd_hears(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        systemd.settimeout(5)
        notifier = Notifier({"NOTIFY_SOCKET": str(path)})
        notifier.ready("serving")
        assert systemd.recv(1000).decode().split("\n") == [
            "READY=1",
            f"MAINPID={os.getpid()}",
            "STATUS=serving",
        ]
        notifier.reloading()
        said = dict(line.split("=") for line in systemd.recv(1000).decode().split("\n"))
        assert said["RELOADING"] == "1"
        assert int(said["MONOTONIC_USEC"]) > 0
        notifier.stopping("bye")
        assert systemd.recv(1000) == b"STOPPING=1\nSTATUS=bye"
        clock = HandClock()
        loop = Loop(clock)
        Watchdog(loop, notifier, 10.0)
        assert systemd.recv(1000) == b"WATCHDOG=1"
        clock.now += 10
        loop.run_once(0)
        assert systemd.recv(1000) == b"WATCHDOG=1"
        loop.close()
        notifier.close()


def test_without_systemd_nothing_is_said_and_nothing_fails() -> None:
    notifier = Notifier({})
    notifier.ready("x")
    notifier.watchdog()
    notifier.close()


def test_a_systemd_that_is_gone_does_not_stop_us(tmp_path: Path) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    notifier.ready("x")
    notifier.close()
