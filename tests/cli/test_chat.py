"""chat: one question or many, over the public port that the daemon names."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from llamad.cli.public import PublicPort, choose_listener
from llamad.errors import ConflictError
from tests.certificates import write_pair
from tests.cli.conftest import BOUND_S, LLAMACTL, Run, Start, environment
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.fake_public import DONE, HANG, FakePublic, piece
from tests.conftest import wait_until


def test_one_question_one_answer(public: FakePublic, llamactl: Run) -> None:
    result = llamactl(
        "chat", "smollm2", "--once", "hi", "--system", "be brief", "--max-tokens", "8", "--temperature", "0"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "Hello world\n", "")
    assert public.asked == [
        {
            "model": "smollm2",
            "max_tokens": 8,
            "temperature": 0.0,
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
            "stream": True,
        }
    ]


def test_stdin_is_the_question_when_it_is_no_terminal(public: FakePublic, llamactl: Run) -> None:
    assert llamactl("chat", "smollm2", stdin="two\nlines\n").stdout == "Hello world\n"
    assert public.asked[0]["messages"][-1]["content"] == "two\nlines\n"


def test_json_prints_the_chunks(public: FakePublic, llamactl: Run) -> None:
    out = llamactl("chat", "smollm2", "--once", "hi", "--json").stdout
    assert [json.loads(line) for line in out.splitlines()] == [piece("Hello"), piece(" world")]


def test_the_key_comes_from_the_environment(public: FakePublic, llamactl: Run) -> None:
    llamactl("chat", "smollm2", "--once", "hi", LLAMAD_API_KEY="secret")
    llamactl("chat", "smollm2", "--once", "hi")
    assert public.keys == ["Bearer secret", None]


def test_proxies_of_the_environment_are_not_for_loopback(public: FakePublic, llamactl: Run) -> None:
    result = llamactl(
        "chat", "smollm2", "--once", "hi", http_proxy="http://127.0.0.1:1", ALL_PROXY="http://127.0.0.1:1"
    )
    assert result.stdout == "Hello world\n"


@pytest.mark.parametrize(
    ("status", "kind", "message", "code"),
    [
        (404, "model-not-found", "cannot find model 'smol'; did you mean 'smollm2'?", 4),
        (
            401,
            "bad-key",
            "cannot use this key; give the key with --api-key or in LLAMAD_API_KEY",
            5,
        ),
        (503, "queue-full", "cannot queue: 512 wait", 1),
    ],
)
def test_an_error_answer(
    public: FakePublic, llamactl: Run, status: int, kind: str, message: str, code: int
) -> None:
    public.status = status
    public.error = {"code": status, "kind": kind, "type": "x", "message": message.partition(";")[0]}
    result = llamactl("chat", "smol", "--once", "hi")
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr == f"llamactl: {message}\n"


def test_an_error_frame_after_some_words(public: FakePublic, llamactl: Run) -> None:
    public.frames = [
        piece("Hel"),
        {"error": {"code": 502, "kind": "instance-died", "message": "cannot go on: killed"}},
    ]
    result = llamactl("chat", "smollm2", "--once", "hi")
    assert (result.returncode, result.stdout, result.stderr) == (
        1,
        "Hel\n",
        "llamactl: cannot go on: killed\n",
    )


def test_an_answer_without_its_end_marker(public: FakePublic, llamactl: Run) -> None:
    public.frames = [piece("Hel")]
    result = llamactl("chat", "smollm2", "--once", "hi")
    assert (result.returncode, result.stdout) == (1, "Hel\n")
    assert "broke off before its end" in result.stderr


def test_the_port_is_closed(public: FakePublic, daemon: FakeDaemon, llamactl: Run) -> None:
    daemon.listeners = ("127.0.0.1:1",)
    result = llamactl("chat", "smollm2", "--once", "hi")
    assert result.returncode == 3
    assert "cannot reach llamad's public port at 127.0.0.1:1" in result.stderr


def test_ctrl_c_ends_a_single_answer(public: FakePublic, start: Start) -> None:
    public.frames = [piece("Hello"), HANG, DONE]
    process = start("chat", "smollm2", "--once", "hi")
    assert process.stdout is not None
    assert process.stdout.read(5) == "Hello"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, err) == (130, "")


class Conversation:
    """llamactl chat on a terminal of its own."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.master, slave = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [LLAMACTL, "chat", "smollm2"],
            env=environment(LLAMAD_SOCKET=str(daemon.socket_path), TERM="dumb"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, text: str) -> None:
        """Read on, past the next `text`."""
        deadline = time.monotonic() + BOUND_S
        while text not in self.text:
            assert time.monotonic() < deadline, f"no {text!r} in {self.text!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65536).decode()
        self.text = self.text.partition(text)[2]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(BOUND_S)
        os.close(self.master)


def test_a_conversation(public: FakePublic, daemon: FakeDaemon) -> None:
    talk = Conversation(daemon)
    try:
        talk.read_until("> ")
        talk.type("first\n")
        talk.read_until("Hello world")
        talk.read_until("> ")
        public.frames = [piece("par\x1b[2Jtial"), HANG, DONE]
        talk.type("second\n")
        talk.read_until(r"par\x1b[2Jtial")
        talk.process.send_signal(signal.SIGINT)
        talk.read_until("> ")
        public.frames = [piece("third answer"), DONE]
        talk.type("third\n")
        talk.read_until("third answer")
        talk.read_until("> ")
        talk.type("\x04")
        wait_until(lambda: talk.process.poll() is not None)
    finally:
        talk.close()
    assert talk.process.returncode == 0
    said = [(message["role"], message["content"]) for message in public.asked[-1]["messages"]]
    assert said == [
        ("user", "first"),
        ("assistant", "Hello world"),
        ("user", "second"),
        ("assistant", "par\x1b[2Jtial"),
        ("user", "third"),
    ]


def test_thoughts_are_for_people_and_not_for_the_next_request(
    public: FakePublic, daemon: FakeDaemon, llamactl: Run
) -> None:
    public.frames = [
        {"choices": [{"delta": {"reasoning_content": "hm"}}]},
        piece("so"),
        piece(" it is"),
        DONE,
    ]
    talk = Conversation(daemon)
    try:
        talk.read_until("> ")
        talk.type("first\n")
        talk.read_until("hm")
        talk.read_until("\r\n\r\nso it is")
        talk.read_until("> ")
        talk.type("second\n")
        talk.read_until("so it is")
    finally:
        talk.close()
    assert public.asked[-1]["messages"][1] == {"role": "assistant", "content": "so it is"}
    assert llamactl("chat", "smollm2", "--once", "hi").stdout == "so it is\n"


def test_an_error_ends_the_answer_and_not_the_chat(public: FakePublic, daemon: FakeDaemon) -> None:
    public.status, public.error = (
        503,
        {"code": 503, "kind": "queue-full", "message": "cannot queue: 512 wait"},
    )
    talk = Conversation(daemon)
    try:
        talk.read_until("> ")
        talk.type("first\n")
        talk.read_until("cannot queue: 512 wait")
        talk.read_until("> ")
        public.status = 200
        talk.type("again\n")
        talk.read_until("Hello world")
    finally:
        talk.close()
    assert public.asked[-1]["messages"] == [{"role": "user", "content": "again"}]


@pytest.mark.parametrize(
    ("listeners", "chosen"),
    [
        (["127.0.0.1:8080"], "127.0.0.1:8080"),
        (["unix:/run/x.sock", "[::]:80"], "[::]:80"),
        (["unix:/run/x.sock"], "unix:/run/x.sock"),
    ],
)
def test_which_listener(listeners: list[str], chosen: str) -> None:
    assert choose_listener(listeners) == chosen


def test_no_listener() -> None:
    with pytest.raises(ConflictError, match="no public listener"):
        choose_listener([])


def test_over_tls_without_a_look_at_the_name(tmp_path: Path, daemon: FakeDaemon, llamactl: Run) -> None:
    public = FakePublic(tls=write_pair(tmp_path, "public.example"))
    daemon.listeners, daemon.tls = (public.listener,), True
    try:
        result = llamactl("chat", "smollm2", "--once", "hi")
    finally:
        public.close()
    assert (result.returncode, result.stdout, result.stderr) == (0, "Hello world\n", "")


def test_tls_on_a_unix_socket_is_not_for_chat() -> None:
    with pytest.raises(ConflictError):
        PublicPort("unix:/run/public.sock", tls=True)
