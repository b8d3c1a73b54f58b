"""What outlives the daemon: state files, measured needs, pins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from llamad.core.events import ModelEntry
from llamad.daemon.needs import KEPT_MAX, Measured, Needs, read_measured
from llamad.daemon.pins import Pins
from llamad.daemon.statefile import StateFile
from llamad.errors import LlamadError

# ---- state files


def test_a_state_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    file = StateFile(str(tmp_path / "state"), "x.json")
    assert file.load() == {}
    file.save({"a": 1})
    file.save({"ä": 2})
    assert StateFile(str(tmp_path / "state"), "x.json").load() == {"ä": 2}
    assert os.listdir(tmp_path / "state") == ["x.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"a": 1}x', "[" * 100_000, "\xff"])
def test_what_is_no_document_counts_as_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="latin-1")
    assert StateFile(str(tmp_path), "x.json").load() == {}


def test_a_half_written_new_one_does_not_count(tmp_path: Path) -> None:
    file = StateFile(str(tmp_path), "x.json")
    file.save({"a": 1})
    (tmp_path / "x.json.new").write_text('{"a": ')
    assert file.load() == {"a": 1}


# ---- needs

MEASURED = Measured(
    {"host": 1}, {"host": 3, "CUDA0": 2}, ({"name": "host", "kind": "host", "total_bytes": 9},)
)


def needs(directory: Path) -> Needs:
    return Needs(StateFile(str(directory), "needs.json"))


def test_needs_outlive_the_daemon(tmp_path: Path) -> None:
    needs(tmp_path).put("k", MEASURED)
    again = needs(tmp_path)
    assert again.get("k") == MEASURED
    assert again.get("other") is None
    again.drop("k")
    assert needs(tmp_path).get("k") is None


@pytest.mark.parametrize(
    "entry",
    [None, 5, {}, {"minimum": {"host": 1}}, {"minimum": {"host": -1}, "maximum": {"host": 1}, "devices": []},
     {"minimum": {"host": 1}, "maximum": {"host": "x"}, "devices": []}, {"minimum": {}, "maximum": {}, "devices": []},
     {"minimum": {"host": 1}, "maximum": {"host": 1}, "devices": 5}, {"minimum": {"host": True}, "maximum": {"host": 1}, "devices": []}],
)  # fmt: skip
def test_entries_that_make_no_sense_are_dropped_and_the_others_stay(tmp_path: Path, entry: Any) -> None:
    document = {"bad": entry, "good": MEASURED.to_document()}
    (tmp_path / "needs.json").write_text(json.dumps(document))
    kept = needs(tmp_path)
    assert kept.get("bad") is None
    assert kept.get("good") == MEASURED


def test_the_longest_unused_is_forgotten_first(tmp_path: Path) -> None:
    kept = needs(tmp_path)
    kept._known = {str(n): MEASURED for n in range(KEPT_MAX)}
    assert kept.get("0") == MEASURED
    kept.put("new", MEASURED)
    assert kept.get("1") is None
    assert kept.get("0") == MEASURED


def test_a_payload_of_a_measure_child_is_read_to_its_totals() -> None:
    payload = {
        "devices": [
            {"name": "CUDA0", "kind": "gpu", "total_bytes": 8, "free_bytes": 7, "description": "x"},
            "odd",
        ],
        "fixed": False,
        "minimum": {"n_ctx": 512, "n_gpu_layers": 1, "bytes": {"host": {"weights": 1, "total": 4}}},
        "maximum": {"n_ctx": 8192, "n_gpu_layers": 1, "bytes": {"host": {"weights": 1, "total": 6}}},
    }
    measured = read_measured(payload)
    assert measured == Measured(
        {"host": 4}, {"host": 6}, ({"name": "CUDA0", "kind": "gpu", "total_bytes": 8},)
    )
    assert read_measured(measured.to_document()) == measured


def test_where_nothing_can_be_kept_it_is_known_until_the_end(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    kept = Needs(StateFile(str(tmp_path / "state"), "needs.json"))
    kept.put("k", MEASURED)
    assert kept.get("k") == MEASURED


# ---- pins


class Wall:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def wall() -> Wall:
    return Wall()


def pins(directory: Path, wall: Wall) -> Pins:
    return Pins(StateFile(str(directory), "pins.json"), wall)


def pinned(kept: Pins, **configured: bool) -> dict[str, bool]:
    entries = tuple(ModelEntry(name, pinned=flag) for name, flag in configured.items())
    return {entry.name: entry.pinned for entry in kept.amended(entries)}


def test_orders_stand_over_the_configuration_and_outlive_the_daemon(tmp_path: Path, wall: Wall) -> None:
    kept = pins(tmp_path, wall)
    kept.pin("a")
    kept.unpin("b", configured=True)
    kept.unpin("c", configured=False)
    for again in (kept, pins(tmp_path, wall)):
        assert pinned(again, a=False, b=True, c=False, d=True) == {
            "a": True,
            "b": False,
            "c": False,
            "d": True,
        }


def test_an_unpin_is_forgotten_with_the_pin_that_it_undid(tmp_path: Path, wall: Wall) -> None:
    kept = pins(tmp_path, wall)
    kept.unpin("a", configured=True)
    assert pinned(kept, a=True) == {"a": False}
    assert pinned(kept, a=False) == {"a": False}
    assert pinned(kept, a=True) == {"a": True}, "pinned anew"


def test_holds_end_by_the_wall_clock(tmp_path: Path, wall: Wall) -> None:
    kept = pins(tmp_path, wall)
    kept.hold("a", 60)
    kept.hold("b", 600)
    wall.now += 100
    assert pins(tmp_path, wall).holds() == {"b": 500}
    kept.unpin("b", configured=False)
    assert pins(tmp_path, wall).holds() == {}


def test_a_pin_takes_the_place_of_a_hold(tmp_path: Path, wall: Wall) -> None:
    kept = pins(tmp_path, wall)
    kept.hold("a", 60)
    kept.pin("a")
    assert kept.holds() == {}
    assert pinned(kept, a=False) == {"a": True}


def test_what_cannot_be_kept_is_refused_and_changes_nothing(tmp_path: Path, wall: Wall) -> None:
    (tmp_path / "state").write_text("a file")
    kept = pins(tmp_path / "state", wall)
    with pytest.raises(LlamadError, match=r"cannot keep the pin: .*state"):
        kept.pin("a")
    assert pinned(kept, a=False) == {"a": False}


def test_nonsense_in_the_file_is_left_out(tmp_path: Path, wall: Wall) -> None:
    document = {"pinned": {"a": True, "b": "yes", "c": 1}, "held_until": {"d": 2000, "e": None, "f": True}}
    (tmp_path / "pins.json").write_text(json.dumps(document))
    kept = pins(tmp_path, wall)
    assert pinned(kept, a=False, b=False, c=False) == {"a": True, "b": False, "c": False}
    assert kept.holds() == {"d": 1000}
