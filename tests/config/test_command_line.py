"""The command line in llama-server's manner."""

from __future__ import annotations

import pytest

from llamad.config.command_line import UsageError, parse


def values(*argv: str) -> dict[str, object]:
    return {name: setting.value for name, setting in parse(argv).layer.items()}


TAKEN: dict[tuple[str, ...], dict[str, object]] = {
    ("--port", "80"): {"port": 80},
    ("--port=80",): {"port": 80},
    ("-c", "512"): {"ctx-size": 512},
    ("-c=512",): {"ctx-size": 512},
    ("--ctx-size", "512", "-c", "1024"): {"ctx-size": 1024},
    ("-ngl", "-1"): {"n-gpu-layers": -1},
    ("--gpu-layers", "all"): {"n-gpu-layers": -1},
    ("--mmap",): {"mmap": True},
    ("--no-mmap",): {"mmap": False},
    ("--no-mmap", "--mmap"): {"mmap": True},
    ("--no-mmap=false",): {"mmap": True},
    ("--no-models-autoload",): {"models-autoload": False},
    ("-fa",): {"flash-attn": "on"},
    ("-fa", "--port", "80"): {"flash-attn": "on", "port": 80},
    ("-fa", "off"): {"flash-attn": "off"},
    ("--host", "a", "--host", "unix:/b,c"): {"host": ("a", "unix:/b", "c")},
    ("--models-dir", "-odd"): {"models-dir": "-odd"},
    ("-s", "-1"): {"seed": 0xFFFFFFFF},
    ("--jinja",): {"jinja": True},
    ("--temp", "0"): {"temperature": 0.0},
}


@pytest.mark.parametrize(("argv", "expected"), TAKEN.items())
def test_taken(argv: tuple[str, ...], expected: dict[str, object]) -> None:
    assert values(*argv) == expected


REFUSED = {
    ("model.gguf",): "cannot use the argument 'model.gguf': options begin with a dash",
    ("-",): "cannot use the argument '-': options begin with a dash",
    ("--",): "cannot use the argument '--': options begin with a dash",
    ("--prt", "80"): "cannot know option '--prt': did you mean '--port'?",
    ("--port",): "cannot use '--port' without a value",
    ("--port", "--host"): "cannot use '--port' without a value",
    ("--port", "http"): "cannot set '--port': 'http' is no whole number",
    ("--models-max", "-1"): "cannot set '--models-max': -1 is too small: at least 0",
    (
        "--mmap=maybe",
    ): "cannot set '--mmap': 'maybe' is neither yes nor no: write true, false, 1, 0, on or off",
    ("--model", "x"): "cannot set '--model' for all models: it belongs into models.ini",
    ("--alias", "x"): "cannot set '--alias' for all models: it belongs into models.ini",
    (
        "--api-key",
        "s3cret\u00fc",
    ): "cannot set '--api-key': a key has at least one character, and visible ASCII characters only",
    (
        "--api-key=sha256:s3cret",
    ): "cannot set '--api-key': a hashed key has 64 hexadecimal digits after sha256:",
    (
        "--sleep-idle-seconds",
        "-2",
    ): "cannot set '--sleep-idle-seconds': -2 is too small: at least 0",
    (
        "--fit-target",
        "1,x",
    ): "cannot set '--fit-target': '1,x' is not a number of MiB, or several with commas between",
    ("--no-jinja",): "cannot honour option '--no-jinja' yet, except with the value true",
    ("--LLAMA_ARG_PORT", "80"): "cannot use the argument '--LLAMA_ARG_PORT': write --port",
}


@pytest.mark.parametrize(("argv", "message"), REFUSED.items())
def test_refused(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(argv)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("argv", "action", "config"),
    [
        ([], "run", ""),
        (["--check-config"], "check", ""),
        (["--config", "x.ini", "--check-config"], "check", "x.ini"),
        (["-h", "--version"], "help", ""),
        (["--help"], "help", ""),
        (["--usage"], "help", ""),
        (["--version", "--port", "1"], "version", ""),
        (["--check-config=false"], "run", ""),
    ],
)
def test_actions(argv: list[str], action: str, config: str) -> None:
    command = parse(argv)
    assert (command.action, command.config) == (action, config)
    assert not {"help", "version", "check-config", "config"} & command.layer.keys()
