"""What a models directory holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llamad.config import sources
from llamad.config.sources import NoModelError, read_model, scan_models_dir
from tests.config.gguf_kit import write_model, write_shards


def names(folder: Path) -> list[str]:
    return [found.name for found in scan_models_dir(str(folder))]


def only(folder: Path) -> sources.Found:
    [found] = scan_models_dir(str(folder))
    return found


def test_files_and_directories_by_name(tmp_path: Path) -> None:
    write_model(tmp_path / "b.gguf")
    write_model(tmp_path / "A-Q4_K_M.GGUF")
    write_model(tmp_path / "a.b.c.gguf")
    write_model(tmp_path / "in-a-directory" / "whatever.gguf")
    write_model(tmp_path / ".hidden.gguf")
    write_model(tmp_path / "mmproj-b.gguf")
    write_model(tmp_path / "deep" / "deeper" / "x.gguf")
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "empty").mkdir()
    assert names(tmp_path) == ["A-Q4_K_M", "a.b.c", "b", "in-a-directory"]


def test_ids_do_not_depend_on_the_order_of_creation(tmp_path: Path) -> None:
    for folder, order in ((tmp_path / "1", "abcABC"), (tmp_path / "2", "CbAcBa")):
        for name in order:
            write_model(folder / f"{name}.gguf")
    assert names(tmp_path / "1") == names(tmp_path / "2") == sorted("abcABC")


def test_a_projector_belongs_to_the_model_beside_it(tmp_path: Path) -> None:
    write_model(tmp_path / "m" / "model.gguf")
    projector = write_model(tmp_path / "m" / "mmproj-F16.gguf")
    assert only(tmp_path).mmproj == str(projector)


def test_two_projectors_are_none(tmp_path: Path) -> None:
    write_model(tmp_path / "m" / "model.gguf")
    write_model(tmp_path / "m" / "mmproj-F16.gguf")
    write_model(tmp_path / "m" / "mmproj-F32.gguf")
    assert only(tmp_path).mmproj == ""
    assert "2 projectors" in only(tmp_path).notes[0]


def test_two_models_in_a_directory_are_listed(tmp_path: Path) -> None:
    write_model(tmp_path / "m" / "a-Q4.gguf")
    write_model(tmp_path / "m" / "a-Q8.gguf")
    fault = only(tmp_path).fault
    assert "a-Q4.gguf, a-Q8.gguf" in fault


def test_a_name_that_two_files_claim_is_nobodys(tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf")
    write_model(tmp_path / "m" / "x.gguf")
    assert "both are named 'm'" in only(tmp_path).fault


@pytest.mark.parametrize("folder", ["", "sharded"])
def test_shards_are_one_model(tmp_path: Path, folder: str) -> None:
    parts = write_shards(tmp_path / folder, "big-Q4", 3)
    found = only(tmp_path)
    assert found.name == (folder or "big-Q4")
    model = read_model(found.path)
    assert model.path == str(parts[0])
    assert model.shards == tuple(map(str, parts))
    assert model.facts.n_shards == 3
    assert model.facts.size_bytes == 3 * parts[0].stat().st_size
    assert len(model.identity) == 3


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_missing_shard_is_named(tmp_path: Path, lost: int) -> None:
    part = write_shards(tmp_path / "m", "big", 3)[lost]
    part.unlink()
    with pytest.raises(ValueError, match=rf"part '{part.name}' is missing"):
        read_model(only(tmp_path).path)


def test_all_missing_shards_are_counted(tmp_path: Path) -> None:
    for part in write_shards(tmp_path / "m", "big", 4)[1:]:
        part.unlink()
    with pytest.raises(ValueError, match=r"part 'big-00002-of-00004.gguf' is missing, and 2 more"):
        read_model(only(tmp_path).path)


def test_shards_of_two_quantisations_are_not_mixed(tmp_path: Path) -> None:
    write_shards(tmp_path / "m", "big-Q4", 2)[1].unlink()
    write_shards(tmp_path / "m", "big-Q8", 2)[0].unlink()
    assert "big-Q4-00001-of-00002.gguf, big-Q8-00002-of-00002.gguf" in only(tmp_path).fault


def test_a_later_shard_is_not_the_model(tmp_path: Path) -> None:
    parts = write_shards(tmp_path, "big", 2)
    with pytest.raises(ValueError, match=r"cannot load from part 2 of 2: name '.*00001"):
        read_model(str(parts[1]))


def test_a_shard_of_another_model_is_noticed(tmp_path: Path) -> None:
    parts = write_shards(tmp_path, "big", 2)
    write_model(parts[1], split__count=3, split__no=2)
    with pytest.raises(ValueError, match=r"it says it is part 3 of 3, its name says 2 of 2"):
        read_model(str(parts[0]))


def test_a_shard_under_a_plain_name_is_noticed(tmp_path: Path) -> None:
    path = write_model(tmp_path / "a.gguf", split__count=3, split__no=0)
    with pytest.raises(ValueError, match=r"part 1 of 3"):
        read_model(str(path))


def test_links_are_followed_and_a_swap_is_noticed(tmp_path: Path) -> None:
    write_model(tmp_path / "store" / "v1.gguf")
    write_model(tmp_path / "store" / "v2.gguf")
    link = tmp_path / "models" / "current.gguf"
    link.parent.mkdir()
    link.symlink_to("../store/v1.gguf")
    before = read_model(only(link.parent).path)
    assert before.path == str(link)
    os.utime(tmp_path / "store" / "v2.gguf", ns=(0, (tmp_path / "store" / "v1.gguf").stat().st_mtime_ns))
    link.unlink()
    link.symlink_to("../store/v2.gguf")
    assert read_model(str(link)).identity != before.identity


def test_a_link_to_nowhere_says_so(tmp_path: Path) -> None:
    (tmp_path / "gone.gguf").symlink_to("nowhere.gguf")
    with pytest.raises(
        ValueError, match=r"cannot read '.*gone.gguf' as user '.+': no such file or directory"
    ):
        read_model(only(tmp_path).path)


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ValueError, match=r"no regular file"):
        read_model(only(tmp_path).path)


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ({"general__type": "adapter"}, "an adapter"),
        ({"general__type": "mmproj"}, "a multimodal projector"),
        ({"general__architecture": "clip"}, "a multimodal projector"),
    ],
)
def test_what_belongs_to_a_model_is_none(tmp_path: Path, metadata: dict[str, str], what: str) -> None:
    with pytest.raises(NoModelError, match=what):
        read_model(str(write_model(tmp_path / "x.gguf", **metadata)))


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.gguf")).touch()
    assert "not UTF-8" in only(tmp_path).fault


def test_a_directory_with_too_much_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ENTRIES_MAX", 3)
    for number in range(4):
        (tmp_path / f"{number}.gguf").touch()
    with pytest.raises(ValueError, match=r"over 3 entries"):
        scan_models_dir(str(tmp_path))
