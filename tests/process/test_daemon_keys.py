"""The whole daemon behind keys: every route by key, limits, what is never shown, reload, and official clients."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from tests.conftest import wait_until
from tests.process.daemon_kit import Daemon, running

MARKER = "sk-marker-4711"
PROMPT = "marker-prompt-0815"
KEYS = f"""
{MARKER}-manage name=ops scope=manage
{MARKER}-infer name=app
{MARKER}-limited name=guest models=chat-exact,other max-concurrent=1
{MARKER}-slow name=slow rpm=2
{MARKER}-keeper name=keeper scope=manage models=chat
"""
MODELS = {
    "chat": "|alias = c|default.seed = 7",
    "other": "",
    "third": "",
    "hidden": "|unlisted = true",
}
VARIANT = "[chat-exact]\nvariant-of = chat\nforce.temperature = 0\nremove = user\n"


def write_keys(file: Path, text: str = KEYS) -> None:
    whole = file.with_suffix(".new")
    whole.write_text(text)
    whole.chmod(0o600)
    whole.rename(file)


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    write_keys(file)
    return file


@pytest.fixture(scope="module")
def shared(key_file: Path) -> Iterator[Daemon]:
    with running(MODELS, "--api-key-file", str(key_file), "--cors-origins", "https://a.example") as daemon:
        with daemon.presets.open("a") as presets:
            presets.write(VARIANT)
        assert daemon.post("/reload")[0] == 200
        yield daemon


@pytest.fixture
def daemon(shared: Daemon, key_file: Path) -> Iterator[Daemon]:
    yield shared
    write_keys(key_file)
    assert shared.post("/reload")[0] == 200


def call(
    daemon: Daemon, method: str, path: str, key: str = "", body: Any = None, **headers: str
) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20)
    sent = {"Authorization": f"Bearer {MARKER}-{key}"} if key else {}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), {**sent, **headers})
        answer = connection.getresponse()
        data = answer.read()
        kind = answer.headers.get("Content-Type", "")
        document = json.loads(data) if kind.startswith("application/json") and data else data
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}, document
    finally:
        connection.close()


def chat(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": PROMPT}], **fields}


# Statuses without a key, with a wrong one, with one that may infer, and with one that may manage.
ROUTES: list[tuple[str, str, Any, tuple[int, int, int, int]]] = [
    ("GET", "/health", None, (200, 200, 200, 200)),
    ("GET", "/v1/health", None, (200, 200, 200, 200)),
    ("GET", "/", None, (401, 401, 200, 200)),
    ("GET", "/models", None, (401, 401, 200, 200)),
    ("GET", "/v1/models", None, (401, 401, 200, 200)),
    ("GET", "/models/chat", None, (401, 401, 200, 200)),
    ("GET", "/v1/models/nowhere", None, (401, 401, 404, 404)),
    ("GET", "/models?reload=1", None, (401, 401, 403, 200)),
    ("GET", "/models?%72eload=1", None, (401, 401, 403, 200)),
    ("GET", "/props", None, (401, 401, 200, 200)),
    ("GET", "/props?model=third", None, (401, 401, 409, 409)),
    ("GET", "/slots?model=third", None, (401, 401, 409, 409)),
    ("POST", "/slots/0?model=third&action=erase", {}, (401, 401, 403, 409)),
    ("GET", "/nowhere", None, (401, 401, 404, 404)),
    ("POST", "/v1/chat/completions", chat("chat"), (401, 401, 200, 200)),
    ("POST", "/completion", chat("chat"), (401, 401, 200, 200)),
    ("POST", "/tokenize", chat("chat"), (401, 401, 200, 200)),
    ("POST", "/v1/messages", chat("chat"), (401, 401, 200, 200)),
    ("POST", "/models/load", {"model": "nowhere"}, (401, 401, 403, 404)),
    ("POST", "//models/load", {"model": "third"}, (401, 401, 403, 404)),
    ("POST", "/models/%6Coad", {"model": "nowhere"}, (401, 401, 403, 405)),
    ("POST", "/models/unload", {"model": "nowhere"}, (401, 401, 403, 404)),
    ("POST", "/models/reload", {}, (401, 401, 403, 200)),
    ("POST", "/models", {"model": "x"}, (401, 401, 403, 405)),
    ("DELETE", "/models?model=chat", None, (401, 401, 403, 405)),
    ("GET", "/status", None, (401, 401, 404, 404)),
    ("GET", "/logs/chat", None, (401, 401, 404, 404)),
    ("POST", "/reload", {}, (401, 401, 404, 404)),
    ("OPTIONS", "/models/load", None, (200, 200, 200, 200)),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "statuses"), ROUTES, ids=[f"{method} {path}" for method, path, _, _ in ROUTES]
)
def test_every_route_by_key(
    daemon: Daemon, method: str, path: str, body: Any, statuses: tuple[int, int, int, int]
):
    found = tuple(call(daemon, method, path, key, body)[0] for key in ("", "wrong", "infer", "manage"))
    assert found == statuses
    assert daemon.value("third") == "unloaded"


# ---- which models


def test_a_limited_key_sees_and_uses_what_it_is_for(daemon: Daemon):
    def told(method: str, path: str, body: Any = None) -> tuple[int, str]:
        status, _, document = call(daemon, method, path, "limited", body)
        return status, document.get("error", {}).get("kind", "")

    no = (403, "model-not-allowed")
    assert told("POST", "/v1/chat/completions", chat("chat-exact")) == (200, "")
    assert told("POST", "/v1/chat/completions", chat("other")) == (200, "")
    for model in ("chat", "c", "third", "nowhere"):
        assert told("POST", "/v1/chat/completions", chat(model)) == no
        assert told("GET", f"/models/{model}") == no
        assert told("GET", f"/props?model={model}") == no
    assert told("GET", "/metrics") == told("GET", "/models/sse") == (403, "scope-missing")
    listed = call(daemon, "GET", "/v1/models", "limited")[2]["data"]
    assert [(model["id"], model["aliases"]) for model in listed] == [("chat-exact", []), ("other", [])]
    assert call(daemon, "GET", "/models/chat-exact", "limited")[2]["id"] == "chat-exact"


def test_a_key_may_change_only_the_models_it_is_for(daemon: Daemon):
    def load(model: str) -> int:
        return call(daemon, "POST", "/models/load", "keeper", {"model": model})[0]

    assert load("third") == load("nowhere") == 403
    assert load("chat") == load("c") == 200
    assert call(daemon, "POST", "/models/reload", "keeper")[0] == 200


def test_lists_of_the_public_port_leave_out_what_is_unlisted(daemon: Daemon):
    names = [model["id"] for model in call(daemon, "GET", "/models", "infer")[2]["data"]]
    assert "hidden" not in names
    assert "hidden" in [model["id"] for model in daemon.get("/models")["data"]]
    assert call(daemon, "POST", "/v1/chat/completions", "infer", chat("hidden"))[0] == 200


# ---- variants


def test_a_variant_is_a_name_with_rules_and_no_process(daemon: Daemon):
    _, _, plain = call(
        daemon, "POST", "/v1/chat/completions", "infer", chat("chat", temperature=1, user="me")
    )
    _, _, exact = call(
        daemon, "POST", "/v1/chat/completions", "infer", chat("chat-exact", temperature=1, user="me")
    )
    assert plain["pid"] == exact["pid"]
    assert (plain["asked"]["temperature"], plain["asked"]["user"], plain["asked"]["seed"]) == (1, "me", 7)
    assert (exact["asked"]["temperature"], exact["asked"]["seed"]) == (0, 7)
    assert "user" not in exact["asked"]
    assert exact["asked"]["model"] == "chat-exact"
    model = daemon.model("chat-exact")
    assert model["id"] == "chat"
    assert model["aliases"] == ["c", "chat-exact"]
    assert model["llamad"]["rules"] == {"default": {"seed": 7}, "force": {}, "remove": []}
    assert model["llamad"]["variants"] == {
        "chat-exact": {"default": {"seed": 7}, "force": {"temperature": 0}, "remove": ["user"]}
    }


# ---- limits, with the official client


def official(daemon: Daemon, key: str) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"http://127.0.0.1:{daemon.port}/v1", api_key=f"{MARKER}-{key}", max_retries=0
    )


def test_the_official_client_raises_its_own_classes(daemon: Daemon):
    messages: Any = [{"role": "user", "content": PROMPT}]
    with pytest.raises(openai.AuthenticationError) as unknown:
        official(daemon, "wrong").models.list()
    assert unknown.value.body["kind"] == "key-unknown"
    with pytest.raises(openai.PermissionDeniedError):
        official(daemon, "limited").chat.completions.create(model="third", messages=messages)
    slow = official(daemon, "slow")
    for _ in range(2):
        slow.chat.completions.create(model="chat", messages=messages)
    with pytest.raises(openai.RateLimitError) as limited:
        slow.chat.completions.create(model="chat", messages=messages)
    assert limited.value.body["kind"] == "key-requests"
    assert 1 <= int(limited.value.response.headers["retry-after"]) <= 30
    slow.models.list()


def test_so_many_requests_at_once(daemon: Daemon):
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20)
    headers = {"Authorization": f"Bearer {MARKER}-limited"}
    body = json.dumps(chat("other", stream=True, n=200))
    connection.request("POST", "/v1/chat/completions", body, headers)
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data: ")
    status, said, document = call(daemon, "POST", "/v1/chat/completions", "limited", chat("other"))
    assert (status, document["error"]["kind"], said["retry-after"]) == (429, "key-concurrency", "1")
    answer.close()
    connection.close()
    wait_until(lambda: call(daemon, "POST", "/v1/chat/completions", "limited", chat("other"))[0] == 200)


# ---- reload


def test_a_reload_takes_and_gives_keys_and_cuts_nothing(daemon: Daemon, key_file: Path):
    body = json.dumps(chat("chat", stream=True, n=40, every_s=0.05))
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20)
    connection.request("POST", "/v1/chat/completions", body, {"x-api-key": f"{MARKER}-infer"})
    stream = connection.getresponse()
    assert stream.readline().startswith(b"data: ")
    write_keys(key_file, f"{MARKER}-new name=new\n")
    assert daemon.post("/reload")[0] == 200
    assert call(daemon, "GET", "/models", "new")[0] == 200
    assert call(daemon, "GET", "/models", "infer")[0] == 401
    assert call(daemon, "POST", "/v1/chat/completions", "infer", chat("chat"))[0] == 401
    assert stream.read().endswith(b"data: [DONE]\n\n")
    connection.close()


def test_a_file_that_is_wrong_changes_nothing(daemon: Daemon, key_file: Path):
    write_keys(key_file, f"{MARKER}-new name=new\n{MARKER}-x {MARKER}\n")
    status, document = daemon.post("/reload")
    assert status == 400
    (problem,) = document["error"]["problems"]
    assert (problem["file"], problem["line"]) == (str(key_file), 2)
    assert problem["message"].startswith("cannot use this key")
    assert MARKER not in json.dumps(document)
    key_file.chmod(0o604)
    assert "every user may read the file" in json.dumps(daemon.post("/reload")[1])
    key_file.unlink()
    assert daemon.post("/reload")[0] == 400
    assert call(daemon, "GET", "/models", "infer")[0] == 200
    assert call(daemon, "GET", "/models", "new")[0] == 401


# ---- what is never shown


def shown_of(process: psutil.Process) -> str:
    """All that /proc tells other processes of the same user, and ps of it everybody."""
    found = []
    for name in ("cmdline", "environ", "comm", "status"):
        try:
            found.append(Path(f"/proc/{process.pid}/{name}").read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(found)


def test_no_key_and_no_prompt_in_proc_logs_or_files(key_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LLAMA_API_KEY", f"{MARKER}-env")
    options = ("--api-key-file", str(key_file), "--log-level", "debug")
    with running(MODELS, *options) as daemon:
        seen = []
        assert call(daemon, "POST", "/v1/chat/completions", "env", chat("chat"))[0] in (200, 401)
        for key in ("infer", "wrong", "limited", ""):
            for model in ("chat", "nowhere"):
                call(daemon, "POST", "/v1/chat/completions", key, chat(model))
            call(daemon, "GET", f"/{MARKER}", key)
        call(daemon, "POST", "/v1/chat/completions", "infer", [PROMPT])
        daemon.post("/reload")
        seen += [shown_of(process) for process in daemon.processes()]
        assert len(seen) >= 4
        for path in ("/status", "/models", "/ps", "/logs", "/logs/chat", "/events", "/props"):
            seen.append(json.dumps(daemon.get(path)))
        seen.append(daemon.log())
        for folder in (daemon.runtime, daemon.directory / "state"):
            seen += [file.read_text() for file in folder.rglob("*") if file.is_file()]
    for text in seen:
        assert MARKER not in text
        assert PROMPT not in text


@pytest.mark.parametrize("where", ["environment", "command line"])
def test_a_key_that_is_given_to_the_daemon_itself(where: str, monkeypatch: pytest.MonkeyPatch):
    options: tuple[str, ...] = ()
    if where == "environment":
        monkeypatch.setenv("LLAMA_API_KEY", f"{MARKER}-own")
    else:
        options = ("--api-key", f"{MARKER}-own")
    with running({"chat": ""}, *options) as daemon:
        assert call(daemon, "GET", "/models")[0] == 401
        assert call(daemon, "GET", "/models", "own")[0] == 200
        assert call(daemon, "POST", "/models/load", "own", {"model": "chat"})[0] == 403
        assert daemon.post("/reload")[0] == 200
        assert call(daemon, "GET", "/models", "own")[0] == 200
        for process in daemon.processes():
            assert MARKER not in shown_of(process)
        assert MARKER not in daemon.log()


# ---- browsers


def test_browsers_of_the_named_origin(daemon: Daemon):
    status, headers, _ = call(daemon, "GET", "/models", "infer", Origin="https://a.example")
    assert (status, headers["access-control-allow-origin"]) == (200, "https://a.example")
    assert headers["vary"] == "Origin"
    status, headers, _ = call(daemon, "GET", "/models", Origin="https://b.example")
    assert (status, "access-control-allow-origin" in headers) == (401, False)


# ---- sockets and TLS


def test_a_unix_socket_with_rights_and_tls(tmp_path: Path):
    import grp
    import ssl

    from tests.certificates import write_pair
    from tests.process.daemon_kit import UnixConnection

    cert, key = write_pair(tmp_path, "one.example")
    group = next((entry for entry in grp.getgrall() if entry.gr_gid in os.getgroups() and entry.gr_gid), None)
    path = tmp_path / "public.sock"
    options = ["--host", f"unix:{path}", "--socket-mode", "606", "--ssl-cert-file", str(cert)]
    options += ["--ssl-key-file", str(key)]
    if os.geteuid() == 0:
        group = grp.getgrnam("daemon")
    if group is not None:
        options += ["--socket-group", group.gr_name]
    with running({"chat": ""}, *options) as daemon:
        assert daemon.get("/status")["daemon"]["listeners"] == [f"unix:{path}"]
        assert path.stat().st_mode & 0o777 == 0o606
        assert group is None or path.stat().st_gid == group.gr_gid
        connection = UnixConnection(str(path))
        connection.connect()
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        connection.sock = context.wrap_socket(connection.sock, server_hostname="one.example")
        connection.request("GET", "/models")
        assert connection.getresponse().status == 200
        connection.close()
        write_pair(tmp_path, "two.example")
        assert daemon.post("/reload")[0] == 200
        wait_until(lambda: "using the renewed certificate" in daemon.log())
        daemon.stop()
        assert not path.exists()
