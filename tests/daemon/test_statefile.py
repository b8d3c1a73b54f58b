"""What is said at the start about a state directory that will keep nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llamad.config.files import user_name
from llamad.daemon.statefile import StateFile, warn_if_unwritable

NOBODY = 65534


@contextmanager
def not_as_root() -> Iterator[None]:
    """Root may write anywhere; whoever else runs this is no root already."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_directory_without_the_right_to_write_is_named_with_the_user(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        state = f"{folder}/below/state"
        with not_as_root():
            user = user_name()
            warn_if_unwritable(state)
    reason = f"no right to write to {folder}"
    assert caplog.messages == [f"cannot keep pins and measurements in {state} as user '{user}': {reason}"]


def test_a_file_in_its_place_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    warn_if_unwritable(f"{tmp_path}/file/state")
    assert [message.partition(": ")[2] for message in caplog.messages] == [f"{tmp_path}/file is no directory"]


def test_a_directory_that_can_be_made_is_fine_and_not_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "a" / "b"
    warn_if_unwritable(str(state))
    assert caplog.messages == []
    assert list(tmp_path.iterdir()) == []
    StateFile(str(state), "x.json").save({"a": 1})
