"""Measuring against reality: the same options, loaded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from llamad.child.instance_spec import N_CTX_DEFAULT_MAX
from tests.process.child_kit import Child

pytestmark = pytest.mark.model

TOLERANCE = 0.03
MIB = 1024 * 1024


class Case(NamedTuple):
    model: str
    n_ctx: int
    n_parallel: int
    cache_type: str
    mmap: bool = True
    unified: bool = True

    @property
    def options(self) -> dict[str, Any]:
        return {
            "ctx-size": self.n_ctx,
            "parallel": self.n_parallel,
            "cache-type-k": self.cache_type,
            "cache-type-v": self.cache_type,
            "mmap": self.mmap,
            "kv-unified": self.unified,
            "cache-ram": 0,
        }

    def settings(self, path: Path) -> dict[str, Any]:
        return {
            "path": str(path),
            "n_ctx": self.n_ctx,
            "n_parallel": self.n_parallel,
            "cache_type_k": self.cache_type,
            "cache_type_v": self.cache_type,
            "use_mmap": self.mmap,
            "kv_unified": self.unified,
        }


CASES = [
    Case("smollm2", 512, 1, "f16"),
    Case("smollm2", 2048, 4, "f16", unified=False),
    Case("smollm2", 8192, 8, "q8_0"),
    Case("gemma", 512, 8, "q8_0"),
    Case("gemma", 4096, 4, "f16", mmap=False),
    Case("gemma", 8192, 1, "f16"),
]


def measured(path: Path, options: dict[str, Any], **more: Any) -> dict[str, Any]:
    with Child("measure", {"model": "m", "path": str(path), "options": options, **more}) as child:
        payload = child.wait_state("measured")
        assert child.states() == ["measuring", "measured"]
        assert child.exit_status(10) == 0
    return payload


def really_loaded(case: Case, path: Path, **more: Any) -> dict[str, dict[str, int]]:
    command = [sys.executable, "-m", "tests.model.real_load", json.dumps(case.settings(path) | more)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    document: dict[str, dict[str, int]] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_what_is_measured_is_what_a_load_takes(case: Case, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(case.model)
    found = measured(path, case.options)
    assert found["fixed"]
    assert found["minimum"] == found["maximum"]
    assert (found["maximum"]["n_ctx"], found["maximum"]["n_gpu_layers"]) == (case.n_ctx, 0)
    predicted, real = found["maximum"]["bytes"], really_loaded(case, path)
    assert predicted.keys() == real.keys() == {"host"}
    for purpose in ("weights", "kv", "compute", "projector", "draft", "adapters"):
        assert predicted["host"][purpose] == pytest.approx(real["host"][purpose], rel=0.001)
    taken = predicted["host"]["total"] - predicted["host"]["rules"]
    assert taken == pytest.approx(real["host"]["total"], rel=TOLERANCE)


@pytest.mark.parametrize("model", ["smollm2", "gemma"])
def test_an_instance_with_a_full_context_has_touched_what_was_measured(
    model: str, request: pytest.FixtureRequest
) -> None:
    """By the kernel's account alone: with a full context of one batch, all buffers have been written to."""
    path = request.getfixturevalue(model)
    options = {"ctx-size": 512, "parallel": 1, "cache-ram": 0}
    predicted = measured(path, options)["maximum"]["bytes"]["host"]
    body = {"model": "m", "path": str(path), "token": "secret", "options": options}
    with Child("instance", body) as child:
        address = child.wait_state("ready")["address"]
        complete(address, {"prompt": "a " * 480, "max_tokens": 8})
        taken = anonymous_bytes(child.process.pid) + mapped_bytes(child.process.pid, path)
        assert predicted["total"] - predicted["rules"] == pytest.approx(taken, rel=TOLERANCE)
        complete(address, {"prompt": "a " * 480, "max_tokens": 8, "grammar": 'root ::= "a"+'})
        with_rules = anonymous_bytes(child.process.pid) + mapped_bytes(child.process.pid, path)
    assert predicted["total"] == pytest.approx(with_rules, rel=TOLERANCE)
    assert predicted["rules"] == pytest.approx(with_rules - taken, rel=0.25)


def test_what_may_be_kept_of_prompts_is_counted_by_both(smollm2: Path) -> None:
    options = {"ctx-size": 256, "parallel": 1}
    without, kept = (
        measured(smollm2, options | {"cache-ram": mib})["maximum"]["bytes"]["host"] for mib in (0, 100)
    )
    assert kept["prompts"] == 100 * MIB
    assert kept["total"] - without["total"] == pytest.approx(100 * MIB, abs=4 * MIB)
    body = {"model": "m", "path": str(smollm2), "token": "secret", "options": options | {"cache-ram": 100}}
    with Child("instance", body) as child:
        assert child.wait_state("ready")["bytes"]["host"] == pytest.approx(kept["total"], rel=TOLERANCE)


def test_the_context_is_open_where_nobody_chose_it(smollm2: Path, gemma: Path) -> None:
    for path in (smollm2, gemma):
        found = measured(path, {})
        assert not found["fixed"]
        assert (found["minimum"]["n_ctx"], found["maximum"]["n_ctx"]) == (4096, N_CTX_DEFAULT_MAX)
        low, high = (found[end]["bytes"]["host"]["total"] for end in ("minimum", "maximum"))
        assert low < high
        (host,) = found["devices"]
        assert (host["name"], host["kind"]) == ("host", "host")
        assert 0 < host["free_bytes"] < host["total_bytes"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fit": "off"}, (8192, 8192)),
        ({"fit-ctx": 1000}, (1000, 8192)),
        ({"ctx-size": 0}, (8192, 8192)),
        ({"fit-ctx": 1024, "parallel": 4, "kv-unified": False}, (4096, 8192)),
    ],
)
def test_fit_options(smollm2: Path, options: dict[str, Any], expected: tuple[int, int]) -> None:
    found = measured(smollm2, options)
    assert (found["minimum"]["n_ctx"], found["maximum"]["n_ctx"]) == expected
    assert found["fixed"] == (expected[0] == expected[1])


def test_the_largest_context_within_what_is_reserved(smollm2: Path) -> None:
    found = measured(smollm2, {"fit-ctx": 512})
    low, high = (found[end]["bytes"]["host"]["total"] for end in ("minimum", "maximum"))
    reserved = (low + high) // 2
    chosen = measured(smollm2, {"fit-ctx": 512}, reserved={"host": reserved})["chosen"]
    assert chosen["n_ctx"] % 256 == 0
    assert 512 < chosen["n_ctx"] < 8192
    assert chosen["bytes"]["host"]["total"] <= reserved
    step = (high - low) / (8192 - 512) * 256
    assert chosen["bytes"]["host"]["total"] > reserved - 1.5 * step


def test_too_little_reserved_is_told_with_numbers(smollm2: Path) -> None:
    found = measured(smollm2, {"ctx-size": 512}, reserved={"host": 100 * MIB})
    assert found["chosen"] is None
    assert re.fullmatch(
        r"\d+ MiB needed on host, 100 MiB to be had \(context 512, 0 layers on GPUs\)", found["reason"]
    )


@pytest.mark.parametrize("content", [None, b"GGUF", b"GGUF" + bytes(100_000)])
def test_a_file_that_is_no_model_fails(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.gguf"
    if content is not None:
        path.write_bytes(content)
    with Child("measure", {"model": "m", "path": str(path), "options": {}}) as child:
        assert child.wait_state("failed")["kind"] == "measure-failed"
        assert child.states() == ["measuring", "failed"]
        assert child.exit_status(10) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"options": {"fit-target": "much"}},
        {"options": {"fit-ctx": "long"}},
        {"options": {"ctx-size": "wide"}},
        {"reserved": [1]},
        {"reserved": {"host": "all"}},
    ],
)
def test_a_start_document_that_nobody_should_send(smollm2: Path, body: dict[str, Any]) -> None:
    with Child("measure", {"model": "m", "path": str(smollm2), **body}) as child:
        assert child.wait_state("failed")["kind"] == "measure-failed"
        assert child.exit_status(10) == 1


def complete(address: str, body: dict[str, Any]) -> None:
    headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{address}/completion", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.status == 200


def anonymous_bytes(pid: int) -> int:
    match = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match
    return int(match[1]) * 1024


def mapped_bytes(pid: int, path: Path) -> int:
    """Sizes of all mappings of the file (proc(5), maps)."""
    lines = (line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
    ranges = (words[0].split("-") for words in lines if words[-1] == str(path.resolve()))
    return sum(int(end, 16) - int(start, 16) for start, end in ranges)
