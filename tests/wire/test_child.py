"""The child pipe: llama.cpp's own lines, ours beside them, and the order in which a child may speak."""

from __future__ import annotations

import pytest

from llamad.errors import ProtocolError
from llamad.wire import child as wire
from llamad.wire.child import ChildLink, Exit, Item, LinkState, Start, State, Stats


@pytest.mark.parametrize(
    "command",
    [
        Exit(),
        wire.Sleep(),
        wire.Wake(),
        wire.Stop(7),
        Start("instance", {"model": "ü/a:b", "options": {"ctx-size": 512}}),
    ],
)
def test_commands_survive_the_pipe(command: wire.Command) -> None:
    line = wire.encode(command)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert wire.parse_command(line.rstrip(b"\n")) == command


@pytest.mark.parametrize(
    "report",
    [
        State("loading", {"value": 0.5}),
        State("ready", {"address": "127.0.0.1:1"}),
        Stats({"steps": 3}),
        Item({"item": "model"}),
        wire.Conversation(7, "ended"),
    ],
)
def test_reports_survive_the_pipe(report: wire.Report) -> None:
    assert wire.parse_report(wire.encode(report)) == report


def test_the_lines_of_llama_server_itself() -> None:
    assert wire.encode(Exit()) == b"cmd_router_to_child:exit\n"
    line = b'cmd_child_to_router:state:{"payload":{"current":"text_model","stages":["text_model"],"value":0.5},"state":"loading"}\r'
    assert wire.parse_report(line) == State(
        "loading", {"current": "text_model", "stages": ["text_model"], "value": 0.5}
    )


@pytest.mark.parametrize(
    "line", [b"", b"main: model loaded", b"cmd_child_to_router:news:{}", b"cmd_router_to_child:exit"]
)
def test_other_lines_are_log_lines(line: bytes) -> None:
    assert wire.parse_report(line) is None


@pytest.mark.parametrize(
    "line", [b"", b"exit", b"cmd_router_to_child:dance", b"cmd_child_to_router:state:{}"]
)
def test_unknown_commands_are_ignored(line: bytes) -> None:
    assert wire.parse_command(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b"cmd_child_to_router:state:{",
        b"cmd_child_to_router:state:[]",
        b'cmd_child_to_router:state:{"payload":[1]}',
        b'cmd_child_to_router:conversation:{"state":"ended"}',
    ],
)
def test_a_broken_report_is_a_protocol_error(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.parse_report(line)


def test_an_instances_life() -> None:
    link = ChildLink()
    for state, then in [
        ("loading", LinkState.WORKING),
        ("loading", LinkState.WORKING),
        ("ready", LinkState.READY),
        ("sleeping", LinkState.SLEEPING),
        ("loading", LinkState.WORKING),
        ("ready", LinkState.READY),
        ("failed", LinkState.EXITING),
    ]:
        link.receive(State(state))
        assert link.state is then
    link.receive(Stats({}))
    assert link.state is LinkState.EXITING


@pytest.mark.parametrize(
    ("before", "state"), [("ready", "loading"), ("scanned", "ready"), ("failed", "failed"), ("", "dance")]
)
def test_a_report_out_of_order_is_an_error_and_changes_nothing(before: str, state: str) -> None:
    link = ChildLink()
    if before:
        link.receive(State(before))
    where = link.state
    with pytest.raises(ProtocolError, match=state):
        link.receive(State(state))
    assert link.state is where
