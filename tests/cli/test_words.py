"""Pure words: suggestions, values by their unit, addresses, help."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from llamad.cli.client import error_from_answer, model_path
from llamad.cli.main import SECTIONS, main
from llamad.cli.names import close_names
from llamad.cli.text import memory, memory_total, printable, scalar
from llamad.errors import NotFoundError


@pytest.mark.parametrize(
    ("typed", "close"),
    [
        ("qwen3-8", ["qwen3-8b", "qwen3-4b"]),
        ("QWEN3-8B", ["qwen3-8b", "qwen3-4b"]),
        ("gemma", ["gemma-3-270m"]),
        ("zzz", []),
        ("", []),
    ],
)
def test_close_names(typed: str, close: list[str]) -> None:
    assert close_names(typed, ["qwen3-8b", "qwen3-4b", "gemma-3-270m"]) == close


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("waited_s", 3.25, "3.2 s"),
        ("rss_bytes", 2048, "2.0 KiB"),
        ("models_max", 4, "4"),
        ("share", 0.5, "0.5"),
        ("autoload", True, "yes"),
        ("x", None, "-"),
        ("x", [], "-"),
        ("x", ["a", "b"], "a, b"),
        ("x", {"free_bytes": 1024, "n": 2}, "free 1.0 KiB, n 2"),
        ("x", "a\n\x1b[2J", r"a \x1b[2J"),
    ],
)
def test_values_by_their_unit(name: str, value: object, text: str) -> None:
    assert scalar(name, value) == text


def test_memory_by_device() -> None:
    assert (
        memory({"CUDA0_bytes": 1 << 30, "host_bytes": 1 << 20, "CUDA1_bytes": 0})
        == "CUDA0 1.0 GiB, host 1.0 MiB"
    )
    assert memory({"host": {"weights": 1 << 20, "kv": 0}}) == "host weights 1.0 MiB"
    assert memory_total({"CUDA0": 1 << 20, "host": {"weights": 1 << 20}}) == "2.0 MiB"
    booked = {"host": {"held_bytes": 1 << 20, "measured_bytes": 5, "discrepancy_bytes": -3}}
    assert (memory(booked), memory_total(booked)) == ("host 1.0 MiB", "1.0 MiB")
    assert memory(1 << 20) == "all 1.0 MiB"
    assert memory(None) == memory({}) == memory_total({}) == memory_total(None) == "-"


def test_printable_keeps_text_and_spells_out_control() -> None:
    assert printable("grüße 🦙\ttab\nline \x07\x9b1m") == "grüße 🦙\ttab\nline \\x07\\x9b1m"


def test_names_are_whole_in_a_path() -> None:
    assert model_path("a/../b c:Q4%?#") == "/models/a%2F..%2Fb%20c%3AQ4%25%3F%23"


def test_an_answer_that_is_no_error_body() -> None:
    for document in (None, [], {}, {"error": "text"}):
        error = error_from_answer(500, document)
        assert (error.status, error.message) == (
            500,
            "cannot understand the answer: HTTP 500 without an error body",
        )


def test_details_of_an_error_body_are_kept() -> None:
    body = {"error": {"code": 404, "message": "cannot", "type": "t", "kind": "k", "need_bytes": 5}}
    error = error_from_answer(404, body)
    assert isinstance(error, NotFoundError)
    assert (error.kind, error.details) == ("k", {"need_bytes": 5})


def test_help_shows_every_command_once_in_its_section() -> None:
    text = CliRunner().invoke(main, ["--help"], prog_name="llamactl").output
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2:3].isalpha()]
    expected = [command.name for commands in SECTIONS.values() for command in commands]
    assert [word for word in listed if word in expected] == expected
    assert all(f"{title}:" in text for title in SECTIONS)
    assert set(expected) == set(main.commands)


@pytest.mark.parametrize("name", sorted(main.commands))
def test_each_help_says_what_it_does_on_one_line_of_80(name: str) -> None:
    command = main.commands[name]
    assert 20 < len(command.get_short_help_str(200)) <= 62
    result = CliRunner().invoke(main, [name, "-h"], prog_name="llamactl")
    assert result.exit_code == 0
    assert f"Usage: llamactl {name}" in result.output


def test_help_and_completion_load_nothing_heavy() -> None:
    heavy = "{'requests', 'rich', 'urllib3', 'msgspec', 'llamad.config.load'}"
    code = f"import sys, llamad.cli.main; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert result.stdout == "[]\n"
