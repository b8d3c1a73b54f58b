"""What llama.cpp complains about, and which of it is a lack of memory."""

from __future__ import annotations

import logging

import pytest

from llamad.engine.complaints import LINE_CHARS_MAX, LINES_MAX, Complaints, failure
from llamad.errors import OutOfMemoryError

log = logging.getLogger("tests.complaints")


def test_the_last_lines_are_the_reason_the_cause_first() -> None:
    with Complaints(log) as complaints:
        log.error("llama_model_load: error loading model: tensor 'x' not found")
        log.warning("llama_model_load: something else")
        log.error("llama_model_load_from_file_impl: failed to load model")
    log.error("too late")
    assert complaints.reason == "error loading model: tensor 'x' not found; failed to load model"
    assert complaints.last == "failed to load model"
    error = complaints.failure("cannot load m.gguf: no model")
    assert (error.kind, error.message) == (
        "load-failed",
        f"cannot load m.gguf: no model: {complaints.reason}",
    )


def test_no_more_lines_and_characters_are_kept_than_the_bounds() -> None:
    with Complaints(log) as complaints:
        for number in range(LINES_MAX + 3):
            log.error("%d %s", number, "x" * 2 * LINE_CHARS_MAX)
    lines = complaints.reason.split("; ")
    assert [line[0] for line in lines] == [str(number) for number in range(3, LINES_MAX + 3)]
    assert all(len(line) == LINE_CHARS_MAX for line in lines)


def test_silence_is_told() -> None:
    with Complaints(log) as complaints:
        pass
    assert (complaints.reason, complaints.last) == ("llama.cpp gave no reason", "")


@pytest.mark.parametrize(
    ("words", "no_memory"),
    [
        ("ggml_aligned_malloc: insufficient memory (attempted to allocate 1440.00 MB)", True),
        ("failed to initialize the context: failed to allocate buffer for kv cache", True),
        ("error loading model: unable to allocate CPU buffer", True),
        ("error loading model vocabulary: std::bad_alloc", True),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", True),
        ("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", True),
        ("mmap failed: Cannot allocate memory", True),
        ("tensor 'token_embd.weight' not found", False),
        ("GGML_ASSERT(n_outputs_max >= n_seq_max) failed", False),
    ],
)
def test_a_lack_of_memory_has_a_kind_of_its_own(words: str, no_memory: bool) -> None:
    error = failure(f"cannot load m.gguf: {words}", kind="load-failed")
    assert isinstance(error, OutOfMemoryError) == no_memory
    assert (error.kind, error.status) == (("out-of-memory", 503) if no_memory else ("load-failed", 500))
