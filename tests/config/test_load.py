"""The one entry: precedence, defaults, what is fatal, and what a whole configuration comes to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llamad.config import check, paths
from llamad.config.daemon import build_settings
from llamad.config.files import user_name
from llamad.config.load import UsageError, load, load_settings
from llamad.config.settings import Loaded, ModelSpec, Problem, Settings
from tests.config.gguf_kit import write_model

NO_FILE = ["--config", "/dev/null"]
NOBODY = 65534


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def presets(folder: Path, text: str, *argv: str, environ: dict[str, str] | None = None) -> Loaded:
    path = write(folder / "models.ini", text)
    return load([*NO_FILE, "--models-preset", path, *argv], environ or {})


def only(loaded: Loaded) -> ModelSpec:
    assert check.render(loaded.registry.problems) == ""
    [spec] = loaded.registry.models.values()
    return spec


# ---- the daemon's own options


@pytest.mark.parametrize(
    ("argv", "environ", "file", "expected"),
    [
        ([], {}, "", 8080),
        ([], {}, "port = 1", 1),
        ([], {}, "[llamad]\nport = 1", 1),
        ([], {"LLAMA_ARG_PORT": "2"}, "port = 1", 2),
        (["--port", "3"], {"LLAMA_ARG_PORT": "2"}, "port = 1", 3),
        (["--port", "3"], {}, "", 3),
        ([], {"PORT": "9", "LLAMA_ARG_PROT": "9"}, "", 8080),
        ([], {"LLAMA_ARG_PORT": ""}, "port = 1", 1),
    ],
)
def test_argv_over_environment_over_file(
    tmp_path: Path, argv: list[str], environ: dict[str, str], file: str, expected: int
) -> None:
    config = write(tmp_path / "llamad.ini", file)
    settings, problems = load_settings(["--config", config, *argv], environ)
    assert (settings.port, problems) == (expected, ())


def test_without_any_file_there_are_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "CONFIG_FILE", str(tmp_path / "none.ini"))
    monkeypatch.setattr(paths, "PRESET_FILE", str(tmp_path / "none-either.ini"))
    loaded = load([], {"RUNTIME_DIRECTORY": "/r", "STATE_DIRECTORY": "/s"})
    assert loaded == Loaded(Settings("/r", "/s"), loaded.registry)
    assert (loaded.registry.models, loaded.registry.problems) == ({}, ())


def test_files_in_their_usual_places_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf")
    monkeypatch.setattr(paths, "CONFIG_FILE", write(tmp_path / "llamad.ini", "models-max = 1\n"))
    monkeypatch.setattr(paths, "PRESET_FILE", write(tmp_path / "models.ini", f"[m]\nmodel = {model}\n"))
    loaded = load([], {})
    assert loaded.settings.models_max == 1
    assert loaded.settings.models_preset == paths.PRESET_FILE
    assert only(loaded).name == "m"


def test_the_configuration_file_may_come_from_the_environment(tmp_path: Path) -> None:
    one, two = (write(tmp_path / f"{port}.ini", f"port = {port}\n") for port in (1, 2))
    assert load_settings([], {"LLAMAD_CONFIG": one})[0].port == 1
    assert load_settings(["--config", two], {"LLAMAD_CONFIG": one})[0].port == 2


@pytest.mark.parametrize(
    ("environ", "user_id", "runtime_dir", "state_dir"),
    [
        ({}, 0, "/run/llamad", "/var/lib/llamad"),
        ({"XDG_RUNTIME_DIR": "/run/user/0"}, 0, "/run/llamad", "/var/lib/llamad"),
        ({"HOME": "/h"}, 7, "/tmp/llamad-7", "/h/.local/state/llamad"),
        ({"XDG_RUNTIME_DIR": "/run/user/7", "XDG_STATE_HOME": "/x"}, 7, "/run/user/7/llamad", "/x/llamad"),
        ({"RUNTIME_DIRECTORY": "/run/llamad:/run/b", "STATE_DIRECTORY": "/s"}, 7, "/run/llamad", "/s"),
    ],
)
def test_directories(environ: dict[str, str], user_id: int, runtime_dir: str, state_dir: str) -> None:
    settings, _ = build_settings({}, environ, user_id, "")
    assert (settings.runtime_dir, settings.state_dir) == (runtime_dir, state_dir)


@pytest.mark.parametrize(
    ("host", "listeners"),
    [
        ("127.0.0.1", ("127.0.0.1:80",)),
        ("localhost", ("localhost:80",)),
        ("0.0.0.0, ::", ("0.0.0.0:80", "[::]:80")),
        ("[::1]", ("[::1]:80",)),
        ("unix:/run/l.sock", ("unix:/run/l.sock",)),
        ("/run/l.sock,127.0.0.1", ("unix:/run/l.sock", "127.0.0.1:80")),
        ("a,a", ("a:80",)),
    ],
)
def test_listeners(host: str, listeners: tuple[str, ...]) -> None:
    settings, problems = load_settings([*NO_FILE, "--host", host, "--port", "80"], {})
    assert (settings.listeners, problems) == (listeners, ())


@pytest.mark.parametrize("host", ["bad_host", "unix:relative", "unix:/" + "x" * 107, "http://x", "a b", "-x"])
def test_addresses_that_are_none(host: str) -> None:
    _, problems = load_settings([*NO_FILE, f"--host={host}"], {})
    assert [(problem.file, problem.fatal) for problem in problems] == [("command line", True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0),
        ("30", 30.0),
        ("500ms", 0.5),
        ("10m", 600.0),
        ("10 years", None),
        ("-1", None),
        ("never", None),
        ("9" * 30, None),
    ],
)
@pytest.mark.parametrize("option", ["drain-after", "queue-timeout", "timeout", "stop-timeout"])
def test_time_limits(option: str, text: str, expected: float | None) -> None:
    settings, problems = load_settings(NO_FILE, {"LLAMA_ARG_" + option.upper().replace("-", "_"): text})
    assert bool(problems) is (expected is None)
    if expected is not None:
        assert getattr(settings, option.replace("-", "_") + "_s") == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("off", None), ("0", 0), ("512", 512 << 20), ("2GiB", 2 << 30)]
)
def test_memory_margin(text: str, expected: int | None) -> None:
    settings, _ = load_settings([*NO_FILE, "--models-memory-margin", text], {})
    assert settings.models_memory_margin_bytes == expected


def test_a_missing_configuration_file_is_fatal_and_names_the_user(tmp_path: Path) -> None:
    _, problems = load_settings(["--config", str(tmp_path / "none.ini")], {})
    assert [str(problem) for problem in problems if problem.fatal] == [
        f"{tmp_path}/none.ini: cannot read '{tmp_path}/none.ini' as user '{user_name()}': no such file or directory"
    ]


def test_usage_is_told_apart_from_configuration() -> None:
    with pytest.raises(UsageError, match="cannot know option '--prt'"):
        load(["--prt", "1"], {})


# ---- models


def test_a_whole_preset(tmp_path: Path) -> None:
    model = write_model(tmp_path / "dir" / "m.gguf")
    os.utime(model, (1_700_000_000, 1_700_000_000))
    loaded = presets(
        tmp_path,
        f"""version = 1
        [*]
        c = 8192
        n-gpu-layers = 8
        load-on-startup = true
        [org/m:Q8]
        model = {model}
        LLAMA_ARG_CTX_SIZE = 4096
        aliases = a, b/c:d
        tags = x,y
        fa = 1
        no-mmap = true
        jinja = true
        stop-timeout = 30
        pinned = on
        priority = 5
        unlisted = TRUE
        env.CUDA_VISIBLE_DEVICES = 0,1
        """,
        "-b",
        "64",
    )
    spec = only(loaded)
    assert (spec.name, spec.path, spec.source, spec.created) == (
        "org/m:Q8",
        str(model),
        "preset",
        1_700_000_000,
    )
    assert (spec.aliases, spec.tags, spec.priority) == (("a", "b/c:d"), ("x", "y"), 5)
    assert (spec.load_on_startup, spec.pinned, spec.unlisted, spec.stop_timeout_s) == (True, True, True, 30.0)
    assert spec.options == {
        "batch-size": 64,
        "ctx-size": 4096,
        "flash-attn": "on",
        "jinja": True,
        "mmap": False,
        "n-gpu-layers": 8,
    }
    assert spec.env == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert spec.args == (
        *("llamad", "--model", str(model), "--alias", "a,b/c:d", "--batch-size", "64", "--ctx-size", "4096"),
        *("--flash-attn", "on", "--jinja", "--no-mmap", "--n-gpu-layers", "8"),
    )
    assert loaded.registry.resolve("b/c:d") is spec
    assert loaded.registry.resolve("B/c:d") is None


def test_the_preset_text_makes_the_same_model_again(tmp_path: Path) -> None:
    model = write_model(tmp_path / "odd # name ;.gguf")
    text = f"""[a]
    model = "{model}"
    alias = x, y
    tags = "t # t"
    temp = 0.25
    s = -1
    l = 1+0.5, 2-inf
    no-mmap = true
    stop-timeout = 1.5
    chat-template = "{{% if x %}}\\n  a ; b \\"c\\"\\n{{% endif %}}"
    """
    first = only(presets(tmp_path, text))
    second = only(presets(tmp_path, first.preset))
    assert second == first


def test_an_environment_is_not_shown_to_clients(tmp_path: Path) -> None:
    """`status` has the preset's text and the arguments, for every key; what is in an environment is often a token."""
    model = write_model(tmp_path / "m.gguf")
    spec = only(presets(tmp_path, f"[m]\nmodel = {model}\nc = 1\nenv.SOME_TOKEN = marker\n"))
    assert spec.env == {"SOME_TOKEN": "marker"}
    assert "ctx-size = 1" in spec.preset
    assert "marker" not in spec.preset + " ".join(spec.args)


def test_daemon_options_count_more_than_presets(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf")
    text = f"[m]\nmodel = {model}\nc = 1\nstop-timeout = 2\n"
    spec = only(presets(tmp_path, text, "-c", "3", "--stop-timeout", "4", environ={"LLAMA_ARG_THREADS": "5"}))
    assert spec.options == {"ctx-size": 3, "threads": 5}
    assert spec.stop_timeout_s == 2.0, "how long this one takes to stop, the model knows better"
    assert only(presets(tmp_path, f"[m]\nmodel = {model}\n", "--stop-timeout", "4")).stop_timeout_s == 4.0


def test_a_directory_and_presets_together(tmp_path: Path) -> None:
    write_model(tmp_path / "models" / "a.gguf")
    write_model(tmp_path / "models" / "b" / "b.gguf")
    write_model(tmp_path / "models" / "b" / "mmproj-x.gguf", general__architecture="clip")
    write_model(tmp_path / "models" / "lora.gguf", general__type="adapter")
    text = f"[a]\nc = 1\n[c]\nmodel = {tmp_path}/models/a.gguf\n"
    loaded = presets(tmp_path, text, "--models-dir", str(tmp_path / "models"))
    models = loaded.registry.models
    assert check.render(loaded.registry.problems) == ""
    assert [(spec.name, spec.source) for spec in models.values()] == [
        ("a", "models-dir"),
        ("b", "models-dir"),
        ("c", "preset"),
    ]
    assert models["a"].options == {"ctx-size": 1}
    assert models["b"].mmproj.endswith("mmproj-x.gguf")
    assert "text only" in models["b"].notes[0]


def test_one_broken_model_leaves_the_others(tmp_path: Path) -> None:
    write_model(tmp_path / "models" / "good.gguf")
    (tmp_path / "models" / "bad.gguf").write_bytes(b"")
    loaded = load([*NO_FILE, "--models-dir", str(tmp_path / "models")], {})
    assert list(loaded.registry.models) == ["good"]
    assert [str(problem) for problem in loaded.registry.problems] == [
        f"{tmp_path}/models/bad.gguf: cannot use this file: it is empty"
    ]
    assert loaded.registry.problems[0].model == "bad"


def test_an_unreadable_file_names_path_and_user(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf")
    path.chmod(0)
    file = write(tmp_path / "models.ini", f"[m]\nmodel = {path}\n")
    # What lies above belongs to pytest and to its user alone.
    folders = [tmp_path, *(folder for folder in tmp_path.parents if folder.stat().st_mode & 0o777 == 0o700)]
    for folder in folders:
        folder.chmod(0o711)
    try:
        with not_as_root():
            loaded = load([*NO_FILE, "--models-preset", file], {})
            user = user_name()
    finally:
        for folder in folders:
            folder.chmod(0o700)
    [problem] = loaded.registry.problems
    assert problem.message == f"cannot read '{path}' as user '{user}': permission denied"
    assert user != "root"


@contextmanager
def not_as_root() -> Iterator[None]:
    """Root may read everything, so it becomes nobody for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_paths_are_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "here" / "m.gguf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    assert only(presets(tmp_path, "[m]\nm = here/m.gguf\n")).path == str(model)
    assert only(presets(tmp_path, "[m]\nm = ~/m.gguf\n")).path == str(model)


def test_names_survive(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf")
    names = ["ggml-org/M:Q8_0", "zażółć", "模型 7b", "a[0]", "UPPER", "upper", "100%", "a=b", "👩‍🔬"]
    loaded = presets(tmp_path, "".join(f"[{name}]\nmodel = {model}\n" for name in names))
    assert list(loaded.registry.models) == names


def test_the_order_and_layout_of_a_file_change_nothing(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf")
    one = presets(tmp_path, f"[m]\nmodel = {model}\nc = 1\nt = 2\n")
    two = presets(tmp_path, f"\n; x\r\n[ m ]  \r\nt=2   \r\nctx-size   =   1\r\nmodel = {model}\t\r\n")
    assert two.registry.models == one.registry.models


@pytest.mark.parametrize(
    ("line", "restart"),
    [
        ("c = 2", True),
        ("env.X = 1", True),
        ("temp = 0.1", True),
        ("alias = x", False),
        ("tags = x", False),
        ("pinned = 1", False),
        ("stop-timeout = 99", False),
        ("load-on-startup = 1", False),
        ("; nothing", False),
    ],
)
def test_the_fingerprint_changes_with_what_an_instance_was_started_with(
    tmp_path: Path, line: str, restart: bool
) -> None:
    model = write_model(tmp_path / "m.gguf")
    before = only(presets(tmp_path, f"[m]\nmodel = {model}\n")).fingerprint
    assert (only(presets(tmp_path, f"[m]\nmodel = {model}\n{line}\n")).fingerprint != before) is restart


def test_the_fingerprint_changes_with_the_files(tmp_path: Path) -> None:
    model, template = write_model(tmp_path / "m.gguf"), tmp_path / "t.jinja"
    template.write_text("{{ a }}")
    text = f"[m]\nmodel = {model}\nchat-template-file = {template}\n"
    seen = {only(presets(tmp_path, text)).fingerprint}
    os.utime(model, (1, 1))
    seen.add(only(presets(tmp_path, text)).fingerprint)
    template.write_text("{{ bb }}")
    seen.add(only(presets(tmp_path, text)).fingerprint)
    write_model(model, general__name="x" * 64)
    os.utime(model, (1, 1))
    seen.add(only(presets(tmp_path, text)).fingerprint)
    assert len(seen) == 4


def test_documents_survive_the_pipe(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf")
    loaded = presets(
        tmp_path, f"[m]\nmodel = {model}\nl = 1+1,2-2\nalias = x\nenv.A = b\n[n]\n", "--host", "a,b"
    )
    spec = loaded.registry.models["m"]
    [problem] = loaded.registry.problems
    for value in (loaded.settings, spec, spec.facts, problem):
        assert type(value).from_document(json.loads(json.dumps(value.to_document()))) == value
    newer = {**problem.to_document(), "something": "new"}
    assert Problem.from_document(newer) == problem


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    loaded = presets(tmp_path, "[a\x1b[2Jb]\n[c]\nmodel = x\x1b[31m\n")
    assert "\x1b" not in check.render(loaded.registry.problems)
    assert len(loaded.registry.problems) == 2


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("port = 1\n", "--config"),
        ("[llamad]\nport = 1\n", "--config"),
        ("[m]\nmodel = x\n", "--models-preset"),
        ("[*]\n", "--models-preset"),
        ("[llamad]\nport = 1\n[models]\nx = 1\n", "--config"),
        ("version = 1\n[a\nmodel = x\n", "--models-preset"),
    ],
)
def test_which_kind_of_file_to_check(tmp_path: Path, text: str, option: str) -> None:
    path = write(tmp_path / "x.ini", text)
    assert check.arguments(path) == [option, path]


def test_what_the_daemon_cannot_do_yet_is_not_sent_to_the_daemons_file(tmp_path: Path) -> None:
    [problem] = presets(
        tmp_path, f"[m]\nmodel = {write_model(tmp_path / 'm.gguf')}\nagent = true\n"
    ).registry.problems
    assert problem.message == "cannot honour option 'agent' yet"


def test_a_check_that_has_nothing_to_read_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CONFIG_FILE", "PRESET_FILE"):
        monkeypatch.setattr(f"llamad.config.paths.{name}", str(tmp_path / name))
    said = check.read_files(load([], {}))
    assert said == f"nothing to read: there is no {tmp_path}/CONFIG_FILE and no {tmp_path}/PRESET_FILE\n"


def test_a_directory_is_one_and_is_said_in_full(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf")
    text = f"[m]\nmodel = {model}\nslot-save-path = {tmp_path}\n"
    assert only(presets(tmp_path, text)).options["slot-save-path"] == str(tmp_path)
    for wrong in (model, tmp_path / "none"):
        [problem] = presets(tmp_path, f"[m]\nmodel = {model}\nslot-save-path = {wrong}\n").registry.problems
        assert "there is no such directory" in str(problem)
