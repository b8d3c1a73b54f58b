"""The GGUF head: real models, and files that somebody spoilt."""

from __future__ import annotations

import io
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.config.gguf import Head, read_head
from llamad.config.sources import read_model
from tests.config.gguf_kit import head, model_bytes, string

TINY = model_bytes()


def read(data: bytes) -> Head:
    return read_head(io.BytesIO(data), len(data))


def test_a_real_llama(smollm2: Path) -> None:
    facts = read_model(str(smollm2)).facts
    assert (facts.architecture, facts.n_ctx_train, facts.n_vocab, facts.n_layer) == ("llama", 8192, 49152, 30)
    assert (facts.n_params, facts.file_type, facts.size_label) == (134_515_008, "Q4_1", "135M")
    assert facts.has_chat_template
    assert facts.size_bytes == smollm2.stat().st_size


def test_a_real_gemma_with_a_large_vocabulary_is_read_fast(gemma: Path) -> None:
    started = time.process_time()
    facts = read_model(str(gemma)).facts
    assert time.process_time() - started < 2.0
    assert (facts.architecture, facts.n_ctx_train, facts.n_vocab) == ("gemma3", 32768, 262_144)
    assert not facts.has_chat_template


@pytest.mark.parametrize("name", ["smollm2", "gemma"])
def test_a_real_model_ends_where_its_head_says(name: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(name)
    with path.open("rb") as file:
        assert read_head(file, path.stat().st_size).data_end == path.stat().st_size


def test_what_a_head_says() -> None:
    found = read(TINY)
    assert found.text("general.name") == "Tiny"
    assert found.whole("llama.context_length") == 4096
    assert found.length("tokenizer.ggml.tokens") == 3
    assert (found.n_tensors, found.n_params, found.data_end) == (2, 64, len(TINY))
    assert found.text("llama.context_length") == "", "a number is no text"
    assert found.whole("general.name") == 0, "nor the other way round"


def test_every_truncation_is_refused() -> None:
    for length in range(len(TINY)):
        with pytest.raises(ValueError, match=r"truncated|empty|no GGUF|cut off"):
            read(TINY[:length])


def spoilt(**metadata: object) -> bytes:
    return model_bytes(**metadata)


HOSTILE = {
    "zeros": b"\0" * 4096,
    "another format": b"PK\x03\x04" + b"\0" * 100,
    "version 1": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "2^63 tensors": b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 0),
    "2^63 keys": b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 63),
    "key of 2^62 bytes": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62) + b"x" * 64,
    "text of 2^62 bytes": b"GGUF"
    + struct.pack("<IQQ", 3, 0, 1)
    + string("k")
    + struct.pack("<IQ", 8, 1 << 62),
    "array of 2^62 texts": b"GGUF"
    + struct.pack("<IQQ", 3, 0, 1)
    + string("k")
    + struct.pack("<IIQ", 9, 8, 1 << 62),
    "array of 2^62 numbers": b"GGUF"
    + struct.pack("<IQQ", 3, 0, 1)
    + string("k")
    + struct.pack("<IIQ", 9, 4, 1 << 62),
    "array of arrays": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("k") + struct.pack("<IIQ", 9, 9, 1),
    "value of type 99": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("k") + struct.pack("<I", 99),
    "alignment 0": spoilt(general__alignment=0),
    "alignment of text": spoilt(general__alignment="x"),
    "tensor of 9 dimensions": head({}, [("a", (1,) * 9, 0, 0)]),
    "tensor of 2^64 elements": head({}, [("a", (1 << 32, 1 << 32), 0, 0)]),
    "tensor far behind the end": head({}, [("a", (1,), 0, 1 << 60)]),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused_quickly(data: bytes) -> None:
    started = time.process_time()
    with pytest.raises(ValueError):
        read(data)
    assert time.process_time() - started < 1.0


@given(st.binary(max_size=200))
def test_random_bytes_behind_the_magic_number(data: bytes) -> None:
    try:
        read(b"GGUF\x03\0\0\0" + data)
    except ValueError:
        pass


@given(st.integers(0, len(TINY) - 1), st.integers(0, 255))
def test_one_byte_flipped_never_breaks_the_reader(position: int, byte: int) -> None:
    data = bytearray(TINY)
    data[position] = byte
    try:
        read(bytes(data))
    except ValueError:
        pass


def test_texts_that_do_not_fit_into_the_file_are_a_cut_or_a_damage() -> None:
    array = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, 262144)
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + array
    with pytest.raises(ValueError, match=r"cut off or damaged: its \d+ bytes cannot hold the 262144 texts"):
        read(head)


def test_what_another_file_begins_with_is_shown_as_text() -> None:
    with pytest.raises(ValueError, match=r"begins with 'PK\\x03\\x04'$"):
        read(HOSTILE["another format"])
