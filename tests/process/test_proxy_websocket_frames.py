"""What a client may send that is no WebSocket frame: it ends its own socket, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.sync.client import connect

from llamad.wire import lease
from tests.conftest import wait_until
from tests.process.echo_instance import EchoInstance
from tests.process.fake_supervisor import FakeSupervisor
from tests.process.proxy_harness import MODEL, Client, Front, whole_front

QUOTED = "org%2Fmodel%3AQ4"
MASK = b"\0\0\0\0"


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Front, FakeSupervisor]]:
    with whole_front() as (front, supervisor), EchoInstance() as echo:
        supervisor.grant(MODEL, echo.address)
        yield front, supervisor
        wait_until(lambda: supervisor.open_leases() == 0)
        assert "Traceback" not in front.log_text()


@pytest.fixture
def front(parts) -> Front:
    return parts[0]


@pytest.fixture
def supervisor(parts) -> FakeSupervisor:
    parts[1].told.clear()
    return parts[1]


def upgrade(client: Client) -> None:
    client.send(
        "GET",
        f"/echo?model={QUOTED}",
        connection="Upgrade",
        upgrade="websocket",
        sec_websocket_version="13",
        sec_websocket_key="dGhlIHNhbXBsZSBub25jZQ==",
    )


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (b"\x81\x01x", 1002),  # not masked
        (b"\x83\x80" + MASK, 1002),  # a reserved opcode
        (b"\xc1\x80" + MASK, 1002),  # an extension that nobody agreed on
        (b"\x80\x80" + MASK, 1002),  # nothing to continue
        (b"\x01\x80" + MASK + b"\x81\x80" + MASK, 1002),  # a message within a message
        (b"\x09\x80" + MASK, 1002),  # a ping in parts
        (b"\x81\xfe\x00\x05" + MASK, 1002),  # a length that is longer than need be
        (b"\x81\xff" + b"\x80" + bytes(7) + MASK, 1002),  # a negative length
        (b"\x82\xff" + (1 << 40).to_bytes(8) + MASK, 1009),
        (b"\x81\x81" + MASK + b"\xff", 1007),  # no UTF-8
        (b"\x88\x81" + MASK + b"x", 1002),  # half a close code
    ],
)
def test_broken_frames_end_their_own_socket_only(
    front: Front, supervisor: FakeSupervisor, frames: bytes, code: int
) -> None:
    with (
        connect(f"ws://127.0.0.1:{front.port}/echo?model={QUOTED}", proxy=None) as healthy,
        Client(front.port) as client,
    ):
        upgrade(client)
        assert client.head()[0] == 101
        for byte in frames:
            client.socket.sendall(bytes([byte]))
        assert client.read_exactly(4)[2:] == code.to_bytes(2)
        wait_until(lambda: supervisor.heard(lease.Release))
        healthy.send("hello")
        assert healthy.recv(10) == "hello"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_after_the_handshake(front: Front, noise: bytes) -> None:
    with Client(front.port) as client:
        upgrade(client)
        client.socket.sendall(noise)
        assert client.head()[0] == 101
