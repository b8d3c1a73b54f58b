"""How likely the tokens of an answer were: what requests ask for, and how it is told.

llama-server has one form for all its routes, which is OpenAI's of chats with token ids added. OpenAI's text completions
have an older one, of parallel lists; those answers carry both.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from llamad.api.fields import Fields
from llamad.engine.vocabulary import Likelihood, Likely, Wanted
from llamad.errors import RequestError

N_PROBS_MAX = 1000
N_TOP_DEFAULT = 20
"""llama-server's, for `logprobs: true` with no number."""


def parse_wanted(fields: Fields) -> Wanted | None:
    """From llama.cpp's `n_probs`, or OpenAI's `logprobs`: true with `top_logprobs` in chats, a number in completions."""
    count = _count(fields)
    after_sampling = fields.flag("post_sampling_probs", False)
    return None if count is None else Wanted(count, after_sampling)


def _count(fields: Fields) -> int | None:
    n_probs = fields.integer("n_probs", 0, 0, N_PROBS_MAX)
    flag, top = fields.raw("logprobs"), fields.raw("top_logprobs")
    if flag is True:
        return n_probs or fields.integer("top_logprobs", N_TOP_DEFAULT, 0, N_PROBS_MAX)
    if top not in (None, 0):
        raise RequestError(
            f"cannot tell {fields.path('top_logprobs')!r} without 'logprobs': true",
            kind="bad-field",
            details={"param": fields.path("top_logprobs")},
        )
    if flag is not None and flag is not False:
        return n_probs or fields.integer("logprobs", 0, 0, N_PROBS_MAX)
    return n_probs or None


def entries(likelihoods: Sequence[Likelihood]) -> list[dict[str, Any]]:
    """llama-server's `completion_probabilities`, OpenAI's `logprobs.content`."""
    return [_entry(each) for each in likelihoods]


def content(likelihoods: Sequence[Likelihood]) -> dict[str, Any]:
    """A `logprobs` member with these entries; nothing if there are none."""
    return {"logprobs": {"content": entries(likelihoods)}} if likelihoods else {}


def columns(likelihoods: Sequence[Likelihood], offset: int) -> dict[str, Any] | None:
    """`logprobs` of a text completion, both forms. `offset`: characters of the answer before these tokens."""
    if not likelihoods:
        return None
    offsets, decoder = [], codecs.getincrementaldecoder("utf-8")("replace")
    for each in likelihoods:
        offsets.append(offset)
        offset += len(decoder.decode(each.piece))
    return {
        "content": entries(likelihoods),
        "tokens": [_text(each.piece) for each in likelihoods],
        "token_logprobs": [each.value for each in likelihoods],
        "top_logprobs": [{_text(top.piece): top.value for top in each.top} for each in likelihoods],
        "text_offset": offsets,
    }


def _entry(likelihood: Likelihood) -> dict[str, Any]:
    value, top = ("prob", "top_probs") if likelihood.after_sampling else ("logprob", "top_logprobs")
    return {
        **_token(likelihood, value),
        top: [_token(each, value) for each in likelihood.top],
    }


def _token(token: Likelihood | Likely, value: str) -> dict[str, Any]:
    return {
        "id": token.id,
        "token": _text(token.piece),
        "bytes": list(token.piece),
        value: token.value,
    }


def _text(piece: bytes) -> str:
    """The whole characters; the bytes tell of one that is cut at the end."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(piece)
