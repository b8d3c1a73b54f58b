"""The same noise within TLS, and noise in the place of TLS."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import trustme

from tests.process.fake_supervisor import FakeSupervisor
from tests.process.mutations import mutants
from tests.process.proxy_harness import MODEL, Front, instance, whole_front
from tests.process.test_proxy_fuzz import (
    AT_ONCE,
    FRAMES,
    HTTP_TOKENS,
    REQUESTS,
    ROUNDS,
    SEED,
    UPGRADE,
    Answers,
    Health,
    assert_served,
    conversation,
    storm,
)

# A client's first message in TLS 1.2, as far as its lengths go; the rest is noise.
CLIENT_HELLO = (
    bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + b"\x00\x00\x02\x00\x2f\x01\x00\x00\x99"
)
TLS_TOKENS = (
    b"\x16\x03\x01", b"\x15\x03\x03\x00\x02\x02\x28", b"\x17\x03\x03\xff\xff", b"\x14\x03\x03\x00\x01\x01", b"\x80\x2e\x01",
    b"\xff\xff", b"\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x03\x00\x00",
)  # fmt: skip


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, FakeSupervisor]]:
    folder: Path = tmp_path_factory.mktemp("tls")
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    files = {"ssl_key_file": str(folder / "key.pem"), "ssl_cert_file": str(folder / "cert.pem")}
    with whole_front(max_body_bytes=1 << 20, **files) as (front, supervisor), instance() as running:
        supervisor.grant(MODEL, running.address)
        supervisor.answers = Answers(supervisor.answers)
        supervisor.converse = lambda message: conversation(message, running.address)
        for _ in range(10):
            assert_served(front)
        yield front, supervisor


def test_mutants_within_tls(parts: tuple[Front, FakeSupervisor]) -> None:
    front, supervisor = parts
    random = Random(SEED)
    samples = (*REQUESTS, UPGRADE + FRAMES[0])
    storm(front, b"", samples, HTTP_TOKENS, random, max(1, ROUNDS // 5))
    health = Health(front, supervisor)
    storm(front, b"", samples, HTTP_TOKENS, random, max(1, ROUNDS // 3))
    health.check()


@pytest.mark.parametrize("broken", [b"2\r\n{}X\r\n", b"zz\r\n"])
def test_a_broken_upload_gets_one_answer(parts: tuple[Front, FakeSupervisor], broken: bytes) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    with parts[0].connect() as connection:
        connection.sendall(head)
        connection.sendall(broken)
        said = b""
        while piece := connection.recv(65536):
            said += piece
    assert said.count(b"HTTP/1.1 ") == 1
    assert said.startswith(b"HTTP/1.1 400 ")


def test_mutants_in_the_place_of_tls(parts: tuple[Front, FakeSupervisor]) -> None:
    front, supervisor = parts
    stream = mutants((CLIENT_HELLO, REQUESTS[0]), TLS_TOKENS, Random(SEED))
    assert_served(front)
    health = Health(front, supervisor)
    for _ in range(ROUNDS):
        crowd = [socket.create_connection(("127.0.0.1", front.port), 10) for _ in range(AT_ONCE)]
        for connection, data in zip(crowd, stream, strict=False):
            connection.sendall(data)
        for connection in crowd:
            connection.close()
    health.check()
