"""API keys: how they are written, and the file of them. A key is hashed where it is read and is nowhere after that.

    line := blank | "#" anything | KEY (blank attribute)*
    attribute := "name=" NAME | "scope=" ("infer" | "manage") | "models=" NAME ("," NAME)*
               | "max-concurrent=" N | "rpm=" N | "tpm=" N

KEY is the key itself, or `sha256:` and the 64 hexadecimal digits of its SHA-256. That is enough for keys that are long
and random; a word that somebody can guess is found from its hash as well. A bare key has the scope `infer`, all models
and no limits. `rpm` and `tpm` are requests and tokens per minute.

Messages carry a line's number and never its text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llamad.config.settings import ApiKey, OptionValue, Problem
from llamad.config.values import model_name

HASHED = "sha256:"
KEYS_MAX = 1000
KEY_CHARS_MAX = 4096
MODELS_MAX = 256
RATE_MAX = 10**9

_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
_VISIBLE = re.compile(r"[!-~]+")
_NUMBER = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class KeyList:
    """Keys with commas between, read into `sha256:HEX` each."""

    hint: str = "KEY,…"

    def parse(self, text: str) -> tuple[str, ...]:
        if not text.strip():
            return ()
        words = text.split(",")
        if len(words) > KEYS_MAX:
            raise ValueError(f"{len(words)} keys are too many: at most {KEYS_MAX}")
        return tuple(HASHED + digest_of(word.strip()) for word in words)

    def render(self, value: OptionValue) -> str:
        return ",".join(value) if isinstance(value, tuple) else str(value)


def digest_of(word: str) -> str:
    """The digest of a key, plain or hashed. ValueError does not repeat it."""
    hashed = _DIGEST.fullmatch(word)
    if hashed:
        return hashed.group(1).lower()
    if word.startswith(HASHED):
        raise ValueError(f"a hashed key has 64 hexadecimal digits after {HASHED}")
    if not _VISIBLE.fullmatch(word):
        raise ValueError("a key has at least one character, and visible ASCII characters only")
    if len(word) > KEY_CHARS_MAX:
        raise ValueError(f"a key has at most {KEY_CHARS_MAX} characters, not {len(word)}")
    return hashlib.sha256(word.encode()).hexdigest()


def bare_keys(words: tuple[str, ...]) -> list[ApiKey]:
    """The keys of `--api-key`: no names, no limits. As in llama-server they may do everything but change models."""
    digests = dict.fromkeys(digest_of(word) for word in words)
    return [ApiKey(digest, _unnamed(digest)) for digest in digests]


def parse(text: str, file: str) -> tuple[list[ApiKey], bool, list[Problem]]:
    """The keys of a file, whether any of them can be read there, and what is wrong with it (all fatal)."""
    keys: dict[str, ApiKey] = {}
    names: dict[str, int] = {}
    problems = []
    plain = False
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        plain = plain or not words[0].startswith(HASHED)
        try:
            key = _key(words)
            if key.digest in keys:
                raise ValueError("the key is in the file already")
            if key.name in names:
                raise ValueError(f"the name {key.name!r} is used on line {names[key.name]}")
            if len(keys) >= KEYS_MAX:
                raise ValueError(f"more than {KEYS_MAX} keys are too many")
        except ValueError as error:
            problems.append(Problem(file, number, f"cannot use this key: {error}", fatal=True))
            continue
        keys[key.digest], names[key.name] = key, number
    return list(keys.values()), plain, problems


def _key(words: list[str]) -> ApiKey:
    digest = digest_of(words[0])
    given: dict[str, Any] = {}
    for position, word in enumerate(words[1:], start=2):
        attribute, equals, text = word.partition("=")
        if not equals or attribute not in _ATTRIBUTES:
            # Not repeated: a key with a blank in it would be shown.
            known = ", ".join(_ATTRIBUTES)
            raise ValueError(f"word {position} is none of {known} with = and a value")
        field, read = _ATTRIBUTES[attribute]
        if field in given:
            raise ValueError(f"{attribute} is said twice")
        try:
            given[field] = read(text)
        except ValueError as error:
            raise ValueError(f"{attribute}: {error}") from None
    return ApiKey(digest, given.pop("name", _unnamed(digest)), **given)


def _unnamed(digest: str) -> str:
    return f"unnamed-{digest[:8]}"


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("1 to 64 letters, digits and . _ @ + - are wanted")
    return text


def _scope(text: str) -> bool:
    if text not in ("infer", "manage"):
        raise ValueError("infer or manage is wanted")
    return text == "manage"


def _models(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(model_name(name) for name in text.split(",")))
    if len(names) > MODELS_MAX:
        raise ValueError(f"{len(names)} models are too many: at most {MODELS_MAX}")
    return names


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text) or not 0 < int(text) <= RATE_MAX:
        raise ValueError(f"a whole number from 1 to {RATE_MAX} is wanted")
    return int(text)


_ATTRIBUTES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("name", _name),
    "scope": ("manage", _scope),
    "models": ("models", _models),
    "max-concurrent": ("max_concurrent", _number),
    "rpm": ("requests_per_minute", _number),
    "tpm": ("tokens_per_minute", _number),
}
