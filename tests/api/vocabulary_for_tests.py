"""A vocabulary of 256 byte tokens and a begin token: enough to see what parsing asks the tokeniser for."""

from __future__ import annotations

BOS = 256


class ByteVocabulary:
    n_vocab = 257
    n_ctx = 4096

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        tokens = tuple(text.encode())
        return (BOS, *tokens) if add_special else tokens
