"""Schemas and grammars through llguidance: the only file that knows it.

It checks a token in 10 us and works out all allowed ones in 0.1 to 5 ms, and it bounds what a grammar can cost; bad ones
are reported, never thrown across the language boundary. What it needs of the model is the bytes of all tokens *as they
appear in an answer*. Tokens that appear as nothing (control tokens) match no text, or a grammar could be stuck in them
for ever.

A schema's answer has no blanks but single spaces and indented new lines: a small model may otherwise write blanks until
its tokens are used up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from llamad.engine import gbnf
from llamad.engine.narrow import Ids, Row
from llamad.engine.vocabulary import Rules
from llamad.errors import RequestError

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_JSON_OPTIONS: JsonCompileOptions = {
    "whitespace_pattern": r" {1,2}|\n[ \t]{0,40}",
    "json_allow_general_unicode_escapes": True,
    # A schema may carry options of its own, but none that make it mean less than it says.
    "lenient": False,
    "coerce_one_of": False,
}
_REASON_CHARS_MAX = 400


class Guide:
    """One vocabulary, prepared: 0.3 s for 50,000 tokens, 3 s for 260,000."""

    def __init__(self, pieces: Sequence[bytes], ends: Sequence[int]) -> None:
        """`pieces`: what each token adds to an answer. `ends`: tokens that end one."""
        self._n_vocab = len(pieces)
        vocabulary = _Vocabulary(pieces, ends)
        self._tokenizer = LLTokenizer(TokenizerWrapper(vocabulary), eos_token=list(ends))
        vocabulary.tokenize = self._tokenizer.greedy_tokenize
        # Long lists of alternatives, a character a lexeme, are wide. Messages must not repeat what clients send: they may
        # be logged.
        self._limits = LLParserLimits(max_items_in_row=20_000, step_max_items=250_000, verbose_errors=False)

    def compile(self, rules: Rules) -> Matcher:
        """A constraint at its beginning. RequestError with the reason for rules that cannot be honoured."""
        try:
            grammar = _grammar(rules)
        except ValueError as error:
            raise _refused(rules, str(error)) from None
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
        # The first mask is the most expensive one, and shows whether anything conforms at all.
        if not matcher.is_error() and any(matcher.compute_bitmask()) and not matcher.is_error():
            return Matcher(matcher, self._n_vocab)
        reason = matcher.get_error()
        impossible = not reason or reason.startswith("NoExtension")
        raise _refused(rules, "no answer can conform to it" if impossible else reason)


class Matcher:
    """How far an answer has come in its rules. See `sampling.Constraint`."""

    def __init__(self, matcher: LLMatcher, n_vocab: int) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab
        self._mask = np.zeros((n_vocab + 31) // 32, np.int32)

    @property
    def complete(self) -> bool:
        return self._matcher.is_stopped()

    def take(self, token: int) -> bool:
        taken = bool(self._matcher.try_consume_tokens([token]))
        if not taken:
            self._check()
        return taken

    def allowed(self, row: Row, k: int) -> Ids:
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._check()
        return np.flatnonzero(
            np.unpackbits(self._mask.view(np.uint8), count=self._n_vocab, bitorder="little")
        )

    def _check(self) -> None:
        if self._matcher.is_error():
            raise RequestError(
                f"cannot follow the request's rules any further: {_short(self._matcher.get_error())}",
                kind="constraint-failed",
            )


class _Vocabulary:
    """What TokenizerWrapper asks for.

    Text that is forced is tokenised, to allow one way of writing it only. The longest tokens will do: they are exact to
    the byte, which a model's own tokeniser, that may put a blank before a text, is not.
    """

    bos_token_id = None

    def __init__(self, pieces: Sequence[bytes], ends: Sequence[int]) -> None:
        self.eos_token_id = ends[0]
        self.special_token_ids = sorted({*ends, *(id for id, piece in enumerate(pieces) if not piece)})
        self.tokens = list(pieces)
        for id in self.special_token_ids:
            self.tokens[id] = b"<%d>" % id
        self.tokenize: Callable[[str], list[int]] = lambda _: []

    def __call__(self, text: bytes) -> list[int]:
        return self.tokenize(text.decode())


def _grammar(rules: Rules) -> str:
    match rules.kind:
        case "json_schema":
            return LLMatcher.grammar_from_json_schema(rules.text, overrides=_JSON_OPTIONS)
        case "gbnf":
            return LLMatcher.grammar_from_lark(gbnf.to_lark(rules.text))
        case "lark":
            return _lark(rules)
    raise ValueError(f"there are no rules of the kind {rules.kind!r}")


def _lark(rules: Rules) -> str:
    """Each part is a grammar of its own, so that references within it lead where they should."""
    grammars: list[dict[str, Any]] = [{"name": "main", "lark_grammar": rules.text}]
    for name, part in rules.parts:
        if part.kind == "json_schema":
            schema = {**json.loads(part.text), "x-guidance": _JSON_OPTIONS}
            grammars.append({"name": name, "json_schema": schema})
        else:
            grammars.append({"name": name, "lark_grammar": gbnf.to_lark(part.text)})
    return json.dumps({"grammars": grammars})


def _refused(rules: Rules, reason: str) -> RequestError:
    if rules.kind == "lark":
        # Ours, so what is wrong must be in the schemas of the request's tools.
        return RequestError(
            f"cannot honour the schemas of the tools: {_short(reason)}",
            kind="unsupported-schema",
            details={"param": "tools"},
        )
    what = "schema" if rules.kind == "json_schema" else "grammar"
    return RequestError(
        f"cannot honour the {what}: {_short(reason)}",
        kind=f"unsupported-{what}",
        details={"param": "json_schema" if what == "schema" else "grammar"},
    )


def _short(reason: str) -> str:
    if reason.startswith("panic:"):
        # Its symbols are counted with 16 bits.
        return "it has too many parts"
    reason = " ".join(reason.replace("<non-verbose/>", "").split())
    return reason if len(reason) <= _REASON_CHARS_MAX else reason[:_REASON_CHARS_MAX] + "…"
