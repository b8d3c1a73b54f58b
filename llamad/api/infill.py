"""llama.cpp's `/infill`: the text between a prefix and a suffix, for editors. The request, and its prompt.

A prompt for filling in the middle is laid out with tokens of the vocabulary's own, files of the same project first
(the repository-level form of https://arxiv.org/pdf/2409.12186), as llama-server does it:

    [REP]myproject [SEP]file-1 its text … [SEP]filename  [BOS][PRE]prefix prompt[SUF]suffix[MID]

What does not fit is cut where it is farthest from the gap: the prefix's beginning, the suffix's end, the first files.
Of a window of WINDOW_TOKENS, llama-server's batch, three quarters are the prefix's and one the suffix's; where the
context is smaller, so is the window, and files get what is left of the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llamad.api.fields import Fields, wrong_field
from llamad.api.generation import Generation, parse_generation
from llamad.api.openai import Streaming, parse_streaming
from llamad.api.prompts import Prompt, mixed_tokens
from llamad.api.sampling import Vocabulary
from llamad.api.unsupported import CHAT_ONLY, refuse_unsupported
from llamad.engine.forms import FimTokens
from llamad.errors import LlamadError

WINDOW_TOKENS = 2048
EXTRA_MAX = 1024
# No vocabulary puts more of them into a token on average: what is farther from the gap need not be looked at.
_TOKEN_CHARS = 128
# The share of the context that an answer is left, if it may be so long.
_ANSWER_SHARE = 4

_PROJECT = "myproject\n"
_FILE = "filename\n"
_SNIPPET = "\n\n--- snippet ---\n\n"


@dataclass(frozen=True, slots=True)
class Extra:
    """Text of another file of the project."""

    text: str
    filename: str = "tmp"


@dataclass(frozen=True, slots=True)
class InfillRequest:
    """A parsed body. `prompt`: the beginning of the answer, which is not part of it."""

    model: str
    prefix: Prompt
    suffix: Prompt
    prompt: str
    extra: tuple[Extra, ...]
    generation: Generation
    streaming: Streaming

    @property
    def chars(self) -> int:
        """What tokenising costs."""
        mixed = sum(len(part) for part in (*self.prefix, *self.suffix) if isinstance(part, str))
        return mixed + len(self.prompt) + sum(len(each.text) + len(each.filename) for each in self.extra)


def require_fim(fim: FimTokens) -> None:
    """Raises LlamadError (501) for a vocabulary that cannot say where the gap is."""
    named = (("prefix", fim.prefix), ("suffix", fim.suffix), ("middle", fim.middle))
    missing = [name for name, token in named if token < 0]
    if missing:
        raise LlamadError(
            f"cannot fill in with this model: its vocabulary has no {' and no '.join(missing)} token",
            kind="not-supported",
            status=501,
        )


def parse_infill(document: dict[str, Any], defaults: Generation, vocabulary: Vocabulary) -> InfillRequest:
    """Raises RequestError that names the field. Texts come back cut to what can count."""
    # Editors send a time limit for prompts, which llama-server takes and does not keep; what costs time is cut here.
    fields = Fields({name: value for name, value in document.items() if name != "t_max_prompt_ms"})
    refuse_unsupported(fields, CHAT_ONLY)
    near = WINDOW_TOKENS * _TOKEN_CHARS
    prefix, suffix = _mixed(fields, "input_prefix"), _mixed(fields, "input_suffix")
    return InfillRequest(
        model=fields.text("model", ""),
        prefix=tuple(part[-near:] if isinstance(part, str) else part for part in prefix[-near:]),
        suffix=tuple(part[:near] if isinstance(part, str) else part for part in suffix[:near]),
        prompt=fields.text("prompt", ""),
        extra=_extras(fields, vocabulary.n_ctx * _TOKEN_CHARS),
        generation=parse_generation(fields, defaults, vocabulary),
        streaming=parse_streaming(fields),
    )


def _mixed(fields: Fields, name: str) -> Prompt:
    value = fields.raw(name)
    parts = value if isinstance(value, list) else (value,)
    if type(value) is int or not all(isinstance(part, str) or type(part) is int for part in parts):
        raise fields.wrong(name, "a string, or an array of strings and token ids", value)
    return tuple(parts)


def _extras(fields: Fields, chars: int) -> tuple[Extra, ...]:
    """The last ones, up to `chars` characters of them."""
    entries = fields.array("input_extra") or []
    if len(entries) > EXTRA_MAX:
        raise fields.wrong("input_extra", f"at most {EXTRA_MAX} files", entries)
    extras = [_extra(fields.path(f"input_extra[{index}]"), entry) for index, entry in enumerate(entries)]
    kept: list[Extra] = []
    for extra in reversed(extras):
        if chars <= 0:
            break
        kept.insert(0, Extra(extra.text[-chars:], extra.filename))
        chars -= len(extra.text)
    return tuple(kept)


def _extra(where: str, entry: object) -> Extra:
    if not isinstance(entry, dict):
        raise wrong_field(where, "an object with text and filename", entry)
    fields = Fields(entry, where)
    text = fields.raw("text")
    if not isinstance(text, str):
        raise fields.wrong("text", "a string", text)
    return Extra(text, fields.text("filename", "tmp"))


def infill_prompt(
    request: InfillRequest, fim: FimTokens, vocabulary: Vocabulary, suffix_first: bool = False
) -> tuple[int, ...]:
    """The tokens that the model is given. `suffix_first`: in the order suffix, prefix, gap."""

    def tokens(*parts: str | int) -> list[int]:
        return mixed_tokens(parts, vocabulary, add_special=False, parse_special=False)

    begin = list(vocabulary.tokenize("", True, False))
    begun = list(vocabulary.tokenize(request.prompt, False, True))
    used = len(begin) + len(begun) + 3
    longest = vocabulary.n_ctx // _ANSWER_SHARE
    wanted = request.generation.max_tokens
    room = vocabulary.n_ctx - used - (min(wanted, longest) if wanted >= 0 else longest)
    window = max(0, min(WINDOW_TOKENS, room))
    prefix = _last(tokens(*request.prefix), 3 * (window // 4))
    suffix = tokens(*request.suffix)[: max(0, window // 4 - (2 + len(begun)))]
    files = _last(_files(request.extra, fim, tokens), room - len(prefix) - len(suffix))
    parts = [[fim.prefix, *prefix, *begun], [fim.suffix, *suffix]]
    first, second = reversed(parts) if suffix_first else parts
    return (*files, *begin, *first, *second, fim.middle)


def _files(extra: Sequence[Extra], fim: FimTokens, tokens: Any) -> list[int]:
    found = [fim.repository, *tokens(_PROJECT)] if fim.repository >= 0 else []
    for each in extra:
        if fim.separator >= 0:
            found += [fim.separator, *tokens(each.filename + "\n")]
        else:
            found += tokens(_SNIPPET)
        found += tokens(each.text)
    return found + ([fim.separator, *tokens(_FILE)] if fim.separator >= 0 else [])


def _last(tokens: list[int], count: int) -> list[int]:
    return tokens[max(0, len(tokens) - max(0, count)) :]
