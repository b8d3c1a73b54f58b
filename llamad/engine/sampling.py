"""From logits to one token, exactly as llama.cpp's default chain does it, at a fraction of its cost.

The order is llama.cpp's: logit bias, penalties, top-k, typical, top-p, min-p, temperature, draw. Its stages run in C
over an array of candidates, and over a whole vocabulary that is most of the cost of a token. Two things are done here
instead:

* Bias and penalties change few logits, so they are applied to those entries of the row only.
* When top-k is the first stage that drops candidates, everything below the k-th largest logit is dropped before the C
  chain sees it. The bound is found without sorting: the k-th largest of the maxima of disjoint blocks is never above
  the k-th largest logit, so what reaches it is a superset of the top k, in the order of token ids, and the chain's
  result is the same token from the same random number.

Greedy needs no chain at all. Random numbers come from the chain, one chain a request, seeded with the request's seed:
no neighbour can move them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from llamad.engine.vocabulary import SamplingParams

Row = npt.NDArray[np.float32]
"""Logits of one token, by token id. Sampling may change it in place."""
Ids = npt.NDArray[Any]
"""Token ids in ascending order."""

# Strided blocks: the maximum over axis 0 of a (64, n / 64) view is computed by SIMD, the other axis is not.
_BLOCK = 64


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a C chain: `top_k`, `typical`, `top_p`, `min_p`, `temperature` or `draw` (value: the seed)."""

    name: str
    value: float


class Chain(Protocol):
    """A C sampler chain with its random state."""

    def draw(self, row: Row, ids: Ids | None) -> int:
        """The token chosen among `ids` (None: all) by their logits in `row`."""
        ...


def stages(params: SamplingParams, seed: int) -> tuple[Stage, ...]:
    """The chain that these parameters ask for, without the stages that do nothing."""
    chain = []
    if params.top_k > 0:
        chain.append(Stage("top_k", params.top_k))
    if params.typical_p < 1.0:
        chain.append(Stage("typical", params.typical_p))
    if params.top_p < 1.0:
        chain.append(Stage("top_p", params.top_p))
    if params.min_p > 0.0:
        chain.append(Stage("min_p", params.min_p))
    return (*chain, Stage("temperature", params.temperature), Stage("draw", seed))


def candidates(row: Row, k: int) -> Ids | None:
    """A superset of the `k` largest entries, or None where finding one is not worth it or not possible (NaN)."""
    width = row.size // _BLOCK
    if not 0 < k <= width:
        return None
    maxima = row[: width * _BLOCK].reshape(_BLOCK, width).max(axis=0)
    bound = np.partition(maxima, width - k)[width - k]
    ids = np.flatnonzero(row >= bound)
    return ids if ids.size >= k else None


class Penalties:
    """llama.cpp's repetition penalties over the last `last_n` tokens, prompt included."""

    def __init__(self, params: SamplingParams, n_ctx: int, history: Sequence[int]) -> None:
        last_n = n_ctx if params.repeat_last_n < 0 else params.repeat_last_n
        self._repeat = params.repeat_penalty
        self._presence = params.presence_penalty
        self._frequency = params.frequency_penalty
        self.active = last_n > 0 and (self._repeat, self._presence, self._frequency) != (1.0, 0.0, 0.0)
        self._window: deque[int] = deque(history[-last_n:] if self.active else (), maxlen=max(last_n, 1))
        self._counts = Counter(self._window)

    def accept(self, token: int) -> None:
        """One more token has been chosen."""
        if not self.active:
            return
        if len(self._window) == self._window.maxlen:
            oldest = self._window[0]
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        self._window.append(token)
        self._counts[token] += 1

    def apply(self, row: Row) -> None:
        """Change the entries of the tokens in the window."""
        if not self._counts:
            return
        ids = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
        logits = row[ids]
        # Dividing a negative logit would reward the repetition, so those are multiplied.
        logits = np.where(logits <= 0, logits * self._repeat, logits / self._repeat)
        row[ids] = logits - counts * self._frequency - self._presence


class Sampler:
    """One request's way of choosing tokens."""

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        make_chain: Callable[[Sequence[Stage]], Chain],
        *,
        history: Sequence[int],
        n_ctx: int,
        forbidden: Sequence[int] = (),
    ) -> None:
        """`history` is the prompt; `forbidden` tokens are never chosen."""
        self._penalties = Penalties(params, n_ctx, history)
        bias: dict[int, float] = dict.fromkeys(forbidden, -np.inf)
        for token, value in params.logit_bias:
            bias[token] = bias.get(token, 0.0) + value
        self._bias_ids = np.fromiter(bias.keys(), np.int64, len(bias))
        self._bias = np.fromiter(bias.values(), np.float32, len(bias))
        # With a typical stage even the likeliest token may be dropped, so there the chain has the last word.
        greedy = params.temperature <= 0 and params.typical_p >= 1.0
        self._chain = None if greedy else make_chain(stages(params, seed))
        self._top_k = params.top_k

    def sample(self, row: Row) -> int:
        """Choose a token; changes `row`."""
        if self._bias.size:
            row[self._bias_ids] += self._bias
        if self._penalties.active:
            self._penalties.apply(row)
        if self._chain is None:
            return int(row.argmax())
        return self._chain.draw(row, candidates(row, self._top_k))

    def accept(self, token: int) -> None:
        """Tell what has become part of the text."""
        self._penalties.accept(token)
