"""The certificate of the public port, as a scan looks at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamad.config.load import load
from tests.certificates import write_pair


def problems(*argv: str) -> tuple[str, list[str]]:
    loaded = load(["--config", "/dev/null", *argv], {})
    return loaded.settings.tls, [problem.message for problem in loaded.fatal]


def test_a_pair_is_stamped_and_the_stamp_follows_the_files(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, "one.example")
    argv = ("--ssl-cert-file", str(cert), "--ssl-key-file", str(key))
    first, none = problems(*argv)
    assert first
    assert not none
    assert problems(*argv) == (first, [])
    write_pair(tmp_path, "longer-name.example")
    assert problems(*argv)[0] not in ("", first)


def test_one_of_the_two_is_a_fault(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, "one.example")
    assert problems("--ssl-cert-file", str(cert))[1] == ["cannot speak TLS without 'ssl-key-file'"]
    assert problems("--ssl-key-file", str(key))[1] == ["cannot speak TLS without 'ssl-cert-file'"]


@pytest.mark.parametrize("fault", ["missing", "no certificate", "other key"])
def test_files_that_are_no_pair(tmp_path: Path, fault: str) -> None:
    cert, key = write_pair(tmp_path, "one.example")
    if fault == "missing":
        key.unlink()
    elif fault == "no certificate":
        cert.write_text("hello")
    else:
        (tmp_path / "other").mkdir()
        _, key = write_pair(tmp_path / "other", "one.example")
    _, [message] = problems("--ssl-cert-file", str(cert), "--ssl-key-file", str(key))
    assert message.startswith("cannot ")
    assert str(key) in message
