"""Files of slots: whole, of this model, and where they belong; anything else is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llamad.child.slot_files import SlotFiles, checked_name
from llamad.engine.orders import SlotState
from llamad.errors import LlamadError, RequestError

STATE = SlotState((5, 6, 7), 2, ((1, 0.5),), np.arange(1000, dtype=np.uint8))


@pytest.fixture
def files(tmp_path: Path) -> SlotFiles:
    (tmp_path / "model").write_bytes(b"weights" * 1000)
    (tmp_path / "slots").mkdir()
    return SlotFiles(tmp_path / "slots", tmp_path / "model", "f16")


def test_there_and_back(files: SlotFiles, tmp_path: Path) -> None:
    size = files.save("one.bin", STATE)
    assert (tmp_path / "slots" / "one.bin").stat().st_size == size
    assert (tmp_path / "slots" / "one.bin").stat().st_mode & 0o077 == 0
    state, n_read = files.load("one.bin")
    assert n_read == size
    assert (state.tokens, state.n_exact, state.adapters) == (STATE.tokens, STATE.n_exact, STATE.adapters)
    assert (state.data == STATE.data).all()
    assert [path.name for path in (tmp_path / "slots").iterdir()] == ["one.bin"]


@pytest.mark.parametrize("change", ["weights", "settings"])
def test_another_models_state_is_refused(files: SlotFiles, tmp_path: Path, change: str) -> None:
    files.save("one", STATE)
    if change == "weights":
        (tmp_path / "model").write_bytes(b"weights" * 999 + b"Weights")
    other = SlotFiles(tmp_path / "slots", tmp_path / "model", "q8_0" if change == "settings" else "f16")
    with pytest.raises(RequestError, match="another model"):
        other.load("one")


@pytest.mark.parametrize("damage", ["cut", "flipped", "nothing", "text"])
def test_a_damaged_file_is_refused(files: SlotFiles, tmp_path: Path, damage: str) -> None:
    files.save("one", STATE)
    path = tmp_path / "slots" / "one"
    data = bytearray(path.read_bytes())
    at = data.index(bytes(range(100)))
    data[at] ^= 1 if damage == "flipped" else 0
    path.write_bytes({"cut": bytes(data[:-40]), "nothing": b"", "text": b"hello"}.get(damage, bytes(data)))
    with pytest.raises(RequestError, match="no whole file") as caught:
        files.load("one")
    assert (caught.value.status, caught.value.kind) == (400, "slot-state")


def test_a_byte_that_is_wrong_is_noticed_wherever_it_is(files: SlotFiles, tmp_path: Path) -> None:
    files.save("one", STATE)
    path = tmp_path / "slots" / "one"
    whole, n_refused = path.read_bytes(), 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            state, _ = files.load("one")
        except RequestError as error:
            n_refused += error.kind == "slot-state"
        else:
            # Some of a directory's entries say nothing of use.
            assert (state.tokens, bytes(state.data)) == (STATE.tokens, bytes(STATE.data))
    assert n_refused > len(whole) * 0.8


def test_a_directory_is_no_file(files: SlotFiles, tmp_path: Path) -> None:
    (tmp_path / "slots" / "one").mkdir()
    with pytest.raises(RequestError, match="directory"):
        files.load("one")


def test_what_is_not_there(files: SlotFiles) -> None:
    with pytest.raises(LlamadError) as caught:
        files.load("one")
    assert (caught.value.status, caught.value.kind) == (404, "slot-file-not-found")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", "/etc/passwd", ".hidden", "a\0b", "c:d", "x" * 256, "a\nb"]
)
def test_names_that_lead_elsewhere(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        checked_name(name)
    assert caught.value.details == {"param": "filename"}


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(LlamadError, match="no such directory"):
        SlotFiles(tmp_path / "none", tmp_path / "model", "")
