"""API keys: what a file of them says, that it is trusted only when it may be, and that no key is kept or shown."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from llamad.config import secrets
from llamad.config.load import load
from llamad.config.settings import ApiKey, Settings

MARKER = "sk-marker-4711"


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def test_a_file_of_keys() -> None:
    text = f"""\ufeff# comment
{MARKER}

  sk-two   name=ops scope=manage
sk-three name=app models=chat,org/embed:Q4 max-concurrent=2 rpm=60 tpm=10000 scope=infer\r
sha256:{digest("sk-four").upper()} name=hashed
"""
    keys, plain, problems = secrets.parse(text, "keys")
    assert problems == []
    assert plain
    assert keys == [
        ApiKey(digest(MARKER), f"unnamed-{digest(MARKER)[:8]}"),
        ApiKey(digest("sk-two"), "ops", manage=True),
        ApiKey(digest("sk-three"), "app", False, ("chat", "org/embed:Q4"), 2, 60, 10000),
        ApiKey(digest("sk-four"), "hashed"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("sk name=a name=b", "name is said twice"),
        ("sk name=", "name: 1 to 64 letters"),
        ("sk scope=root", "scope: infer or manage is wanted"),
        ("sk models=a,,b", "models: cannot use an empty name"),
        ("sk rpm=0", "rpm: a whole number from 1"),
        ("sk tpm=-1", "tpm: a whole number from 1"),
        ("sk max-concurrent=many", "max-concurrent: a whole number from 1"),
        (f"sk {MARKER}", "word 2 is none of name, scope"),
        (f"sk {MARKER}=1", "word 2 is none of name, scope"),
        ("sha256:abc", "a hashed key has 64 hexadecimal digits"),
        ("schlüssel", "a key has at least one character, and visible ASCII"),
        ("sk-first", "the key is in the file already"),
        (f"sha256:{digest('sk-first')}", "the key is in the file already"),
        ("sk name=first", "the name 'first' is used on line 1"),
    ],
)
def test_faults_are_told_with_their_line_and_without_the_key(line: str, reason: str) -> None:
    keys, _, problems = secrets.parse(f"sk-first name=first\n{line}\n", "keys")
    assert [key.name for key in keys] == ["first"]
    [problem] = problems
    assert str(problem).startswith(f"keys:2: cannot use this key: {reason}")
    assert problem.fatal
    assert MARKER not in str(problem)


def test_keys_are_bounded() -> None:
    text = "".join(f"sk-{number}\n" for number in range(secrets.KEYS_MAX + 1))
    keys, _, problems = secrets.parse(text, "keys")
    assert len(keys) == secrets.KEYS_MAX
    assert len(problems) == 1


def load_with(file: Path, *more: str) -> tuple[Settings, list[str]]:
    loaded = load(["--config", "/dev/null", "--api-key-file", str(file), *more], {})
    return loaded.settings, [problem.message for problem in loaded.fatal]


@pytest.mark.parametrize(
    ("text", "mode", "fault"),
    [
        ("sk-plain\n", 0o644, "every user may read"),
        ("sk-plain\n", 0o602, "every user may write"),
        (f"sha256:{digest('x')}\n", 0o646, "every user may write"),
        (f"sha256:{digest('x')}\n", 0o644, ""),
        ("sk-plain\n", 0o640, ""),
        ("# none\n", 0o600, "there are none"),
    ],
)
def test_a_file_is_trusted_by_its_rights(tmp_path: Path, text: str, mode: int, fault: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(mode)
    _, messages = load_with(file)
    assert (fault in messages[0]) if fault else not messages


def test_what_the_file_says_of_a_key_counts_more_than_the_bare_option(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("sk-one name=one rpm=5\n")
    file.chmod(0o600)
    settings, messages = load_with(file, "--api-key", "sk-one,sk-two", "--api-key", "sk-two")
    assert not messages
    assert settings.keys == (
        ApiKey(digest("sk-one"), "one", requests_per_minute=5),
        ApiKey(digest("sk-two"), f"unnamed-{digest('sk-two')[:8]}"),
    )


def test_settings_hold_no_key(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{MARKER} name=one\n")
    file.chmod(0o600)
    settings, _ = load_with(file, "--api-key", MARKER + "-b")
    assert MARKER not in repr(settings)
    assert MARKER not in str(settings.to_document())
    assert Settings.from_document(settings.to_document()) == settings


def test_a_missing_file_is_fatal(tmp_path: Path) -> None:
    settings, messages = load_with(tmp_path / "none")
    assert "cannot read the keys" in messages[0]
    assert settings.keys == ()
