"""What a real instance takes: what it was promised, what it says, and what happens when there is not enough."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from llamad.wire.child import EXIT_OUT_OF_MEMORY, Sleep, Start, Wake, encode
from tests.model.test_instance_serving import TOKEN, Instance, loaded
from tests.model.test_measure import measured
from tests.process.child_kit import Child

pytestmark = pytest.mark.model

TOLERANCE = 0.03
MIB = 1024 * 1024


@contextmanager
def confined(model: Path, options: dict[str, Any], data_mib: int, **body: Any) -> Iterator[Child]:
    """An instance that may have so much anonymous memory (setrlimit(2), RLIMIT_DATA)."""
    with Child() as child:
        limit = data_mib * MIB
        resource.prlimit(child.process.pid, resource.RLIMIT_DATA, (limit, limit))
        document = {"model": "m", "path": str(model), "options": options, "token": TOKEN, "transport": "tcp"}
        child.send(encode(Start("instance", document | body)))
        yield child


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("smollm2", {"ctx-size": 512, "parallel": 1}),
        ("smollm2", {"ctx-size": 8192, "parallel": 8, "cache-type-k": "q8_0", "cache-type-v": "q8_0"}),
        ("gemma", {"ctx-size": 4096, "parallel": 4, "mmap": False}),
    ],
    ids=str,
)
def test_an_instance_takes_what_was_measured_and_says_so(
    model: str, options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(model)
    predicted = measured(path, options)["maximum"]["bytes"]["host"]
    with loaded(path, options) as instance:
        ready = instance.ready
    taken = ready["bytes_detail"]["host"]
    assert ready["bytes"] == {"host": taken["total"]}
    assert taken["total"] == sum(size for purpose, size in taken.items() if purpose != "total")
    for purpose in ("weights", "kv", "compute"):
        assert predicted[purpose] == pytest.approx(taken[purpose], rel=0.001)
    assert predicted["total"] == pytest.approx(taken["total"], rel=TOLERANCE)
    assert ready["n_gpu_layers"] == 0


def test_an_open_context_is_fitted_to_what_is_reserved(smollm2: Path) -> None:
    options = {"parallel": 1, "fit-ctx": 512}
    found = measured(smollm2, options)
    low, high = found["minimum"]["bytes"]["host"]["total"], found["maximum"]["bytes"]["host"]["total"]
    reserved = (low + high) // 2
    with loaded(smollm2, options, reserved={"host": reserved}) as instance:
        ready = instance.ready
        assert f"fit: context {ready['n_ctx']}, 0 layers on GPUs" in instance.child.stderr.decode()
    step = (high - low) / (8192 - 512) * 256
    assert ready["n_ctx"] % 256 == 0
    assert 512 < ready["n_ctx"] < 8192
    # What it really takes may differ by the overhead's noise, not by a step more of context.
    assert reserved - 2 * step < ready["bytes"]["host"] <= reserved + step / 2


def test_what_is_known_to_fit_is_taken_without_measuring(smollm2: Path) -> None:
    options = {"parallel": 1}
    maximum = {"host": measured(smollm2, options)["maximum"]["bytes"]["host"]["total"]}
    with loaded(smollm2, options, reserved=maximum, maximum=maximum) as instance:
        assert instance.ready["n_ctx"] == 8192
        assert not has_had_a_child(instance)
    less = {"host": maximum["host"] - MIB}
    with loaded(smollm2, options, reserved=less, maximum=maximum) as instance:
        assert 4096 < instance.ready["n_ctx"] < 8192
        assert has_had_a_child(instance)


def has_had_a_child(instance: Instance) -> bool:
    """Whether it has had a child that is waited for: their processor time (proc(5), cutime)."""
    return sum(psutil.Process(instance.child.process.pid).cpu_times()[2:4]) > 0


@pytest.mark.parametrize(
    "options", [{"fit": "off"}, {"ctx-size": 2048}, {"ctx-size": 0}], ids=["off", "fixed", "the model's own"]
)
def test_what_is_configured_is_taken_as_it_is(smollm2: Path, options: dict[str, Any]) -> None:
    with loaded(smollm2, {"parallel": 1} | options, reserved={"host": 1}) as instance:
        assert instance.ready["n_ctx"] == (options.get("ctx-size") or 8192)


def test_too_little_reserved_is_a_lack_of_memory(smollm2: Path) -> None:
    with confined(smollm2, {"parallel": 1}, 4096, reserved={"host": 100 * MIB}) as child:
        failure = child.wait_state("failed")
        assert failure["kind"] == "out-of-memory"
        assert failure["message"].startswith(f"cannot load {smollm2}: ")
        assert "MiB needed on host, 100 MiB to be had (context 4096" in failure["message"]
        assert child.exit_status(10) == EXIT_OUT_OF_MEMORY == 71


def test_a_minimum_that_is_reserved_to_the_byte_is_enough(smollm2: Path) -> None:
    """The overhead of a process is never measured twice the same."""
    options = {"parallel": 1}
    least = measured(smollm2, options)["minimum"]["bytes"]["host"]["total"]
    with loaded(smollm2, options, reserved={"host": int(least * 0.99)}) as instance:
        assert instance.ready["n_ctx"] == 4096


@pytest.mark.parametrize(
    ("options", "data_mib", "words"),
    [
        ({"ctx-size": 512, "mmap": False}, 150, "unable to allocate CPU buffer"),
        (
            {"ctx-size": 65536},
            1000,
            "no context of 65536 tokens: insufficient memory (attempted to allocate 1440.00 MB)",
        ),
    ],
    ids=["weights", "KV"],
)
def test_memory_that_really_runs_out_in_a_load(
    smollm2: Path, options: dict[str, Any], data_mib: int, words: str
) -> None:
    with confined(smollm2, {"parallel": 1} | options, data_mib) as child:
        failure = child.wait_state("failed")
        assert failure["kind"] == "out-of-memory"
        assert failure["message"].startswith(f"cannot load {smollm2}: no ")
        assert words in failure["message"]
        assert child.exit_status(10) == EXIT_OUT_OF_MEMORY


def test_memory_that_runs_out_where_llama_cpp_would_abort(smollm2: Path) -> None:
    """There is room for the KV buffer, and then none for the graph: an assertion of ggml fails."""
    with confined(smollm2, {"ctx-size": 8192, "parallel": 1}, 4096) as child:
        child.wait_state("loading")
        # 180 MiB of KV and the vocabulary, but not the 42 MiB of the graph.
        limit = data_bytes(child.process.pid) + 220 * MIB
        resource.prlimit(child.process.pid, resource.RLIMIT_DATA, (limit, limit))
        failure = child.wait_state("failed")
        assert failure["kind"] == "out-of-memory"
        assert failure["message"].startswith("cannot go on: llama.cpp gave up: ggml.c:")
        assert "insufficient memory (attempted to allocate" in failure["message"]
        assert child.exit_status(10) == EXIT_OUT_OF_MEMORY


def test_memory_that_runs_out_while_the_vocabulary_is_read(gemma: Path) -> None:
    with confined(gemma, {"ctx-size": 512, "parallel": 1}, 4096) as child:
        child.wait_state("loading")
        limit = data_bytes(child.process.pid) + 16 * MIB
        resource.prlimit(child.process.pid, resource.RLIMIT_DATA, (limit, limit))
        failure = child.wait_state("failed")
        assert failure["kind"] == "out-of-memory"
        assert "bad_alloc" in failure["message"]
        assert child.exit_status(10) == EXIT_OUT_OF_MEMORY


def data_bytes(pid: int) -> int:
    """What RLIMIT_DATA is compared with (proc(5), VmData)."""
    found = re.search(r"VmData:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def test_memory_that_runs_out_in_a_wake(smollm2: Path) -> None:
    with confined(smollm2, {"ctx-size": 8192, "parallel": 1}, 4096) as child:
        child.wait_state("ready")
        child.send(encode(Sleep()))
        child.wait_state("sleeping")
        resource.prlimit(child.process.pid, resource.RLIMIT_DATA, (250 * MIB, 250 * MIB))
        child.send(encode(Wake()))
        failure = child.wait_state("failed")
        assert failure["kind"] == "out-of-memory"
        assert "cannot load" in failure["message"]
        assert child.exit_status(10) == EXIT_OUT_OF_MEMORY
