"""From logits to one token, exactly as llama.cpp does it, at a fraction of its cost.

`stages` says what is to be done, `narrow` which candidates C need not see. Bias, penalties and DRY are applied to the few
entries of the row that they can change. Greedy needs no chain at all.

Random numbers come from the chain, one chain a request, seeded with the request's seed: no neighbour can move them.

Under a constraint the token is drawn freely first and checked, which costs microseconds; only if it is refused the
allowed ones are worked out, and the draw is made again among them. That is llama-server's way, too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from llamad.engine import narrow
from llamad.engine.logprobs import Ranked, after_sampling, before_sampling
from llamad.engine.narrow import Ids, Row
from llamad.engine.stages import Stage, look_back, recipe
from llamad.engine.vocabulary import SamplingParams, Wanted
from llamad.errors import RequestError


class Chain(Protocol):
    """C samplers one after another, with their random state and what they remember of accepted tokens."""

    def draw(self, row: Row, ids: Ids | None) -> int:
        """The token chosen among `ids` (None: all) by their logits in `row`."""
        ...

    def adjust(self, row: Row, ids: Ids) -> None:
        """Apply stages that change tokens one by one to these entries of `row`, in place."""
        ...

    def accept(self, token: int) -> None:
        """A token has become part of the text."""
        ...

    def chances(self) -> tuple[Ids, npt.NDArray[np.float32]]:
        """The candidates that were left for the last draw, and their probabilities."""
        ...


class Constraint(Protocol):
    """Which tokens may come next."""

    def take(self, token: int) -> bool:
        """Move on over `token` if it is allowed; False, and nothing changes, if it is not."""
        ...

    def allowed(self, row: Row, k: int) -> Ids:
        """Tokens that are allowed next: all of them, or at least the `k` > 0 best of them by their logits in `row`."""
        ...

    @property
    def complete(self) -> bool:
        """Nothing more can follow."""
        ...


class Choice(NamedTuple):
    """A token, and how likely it was if that was asked for."""

    token: int
    ranked: Ranked | None


class Window:
    """The last `last_n` tokens, prompt included, and how often each is among them."""

    def __init__(self, last_n: int, history: Sequence[int]) -> None:
        self._tokens: deque[int] = deque(history[-last_n:], maxlen=last_n)
        self.counts = Counter(self._tokens)

    def accept(self, token: int) -> None:
        """One more token has been chosen."""
        if len(self._tokens) == self._tokens.maxlen:
            oldest = self._tokens[0]
            self.counts[oldest] -= 1
            if not self.counts[oldest]:
                del self.counts[oldest]
        self._tokens.append(token)
        self.counts[token] += 1

    def ids(self) -> Ids:
        """Its different tokens."""
        return np.fromiter(self.counts.keys(), np.int64, len(self.counts))


class Penalties:
    """llama.cpp's repetition penalties, on the entries of the window's tokens."""

    def __init__(self, stage: Stage, history: Sequence[int]) -> None:
        last_n, self._repeat, self._frequency, self._presence = stage.args
        self._window = Window(last_n, history)
        self.accept = self._window.accept

    def apply(self, row: Row) -> None:
        ids = self._window.ids()
        counts = np.fromiter(self._window.counts.values(), np.float32, ids.size)
        logits = row[ids]
        # Dividing a negative logit would reward the repetition, so those are multiplied.
        logits = np.where(logits <= 0, logits * self._repeat, logits / self._repeat)
        row[ids] = logits - counts * self._frequency - self._presence


class Dry:
    """llama.cpp's DRY: what would continue a repetition is made less likely. Only the window's tokens can do that."""

    def __init__(self, stage: Stage, history: Sequence[int], chain: Chain) -> None:
        last_n = look_back((stage,))
        self._window = Window(last_n, history)
        self._chain = chain
        for token in history[-last_n:]:
            chain.accept(token)

    def accept(self, token: int) -> None:
        self._window.accept(token)
        self._chain.accept(token)

    def apply(self, row: Row) -> None:
        self._chain.adjust(row, self._window.ids())


class Bias:
    """What is added to the logits of some tokens; false where that is nothing."""

    def __init__(self, params: SamplingParams, forbidden: Iterable[int]) -> None:
        bias: dict[int, float] = dict.fromkeys(forbidden, -np.inf)
        for token, value in params.logit_bias:
            bias[token] = bias.get(token, 0.0) + value
        self._ids = np.fromiter(bias.keys(), np.int64, len(bias))
        self._values = np.fromiter(bias.values(), np.float32, len(bias))
        self.forbids = bool(np.isneginf(self._values).any())

    def __bool__(self) -> bool:
        return self._ids.size > 0

    def apply(self, row: Row) -> None:
        row[self._ids] += self._values


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
        forbidden: Iterable[int] = (),
        constraint: Constraint | None = None,
        wanted: Wanted | None = None,
    ) -> None:
        """`history` is the prompt; `forbidden` tokens are never chosen; `wanted`: what to tell of likelihoods."""
        plan = recipe(params, seed, n_ctx)
        stages = plan.chain
        self.seed = seed
        bias = Bias(params, forbidden)
        edits = [
            Penalties(edit, history) if edit.name == "penalties" else Dry(edit, history, make_chain((edit,)))
            for edit in plan.edits
        ]
        self._forbids = bias.forbids
        # Called for each token, so only those that do something.
        self._changes = [*([bias.apply] if bias else []), *(edit.apply for edit in edits)]
        self._memories = [edit.accept for edit in edits]
        self._chain = make_chain(stages) if stages else None
        first = stages[0] if stages else Stage("top_k", (1,))
        self._sieve = narrow.sieve(first)
        self._n_needed = int(first.args[0]) if first.name == "top_k" else 0
        self._constraint = constraint
        self._wanted = wanted
        n_back = look_back(stages)
        if self._chain is not None and (n_back or stages[-1].name == "adaptive_p"):
            self._memories.append(self._chain.accept)
            for token in history[max(0, len(history) - n_back) :]:
                self._chain.accept(token)

    @property
    def complete(self) -> bool:
        """The constraint allows nothing more: the text ends here."""
        return self._constraint is not None and self._constraint.complete

    def sample(self, row: Row) -> Choice:
        """Choose a token; changes `row`. Raises RequestError (kind `no-token`) where what is
        forbidden and what is demanded leave none, or where a constraint is too
        expensive to follow."""
        wanted = self._wanted
        before = wanted is not None and not wanted.after_sampling
        original = row.copy() if before and self._changes else row
        for change in self._changes:
            change(row)
        token = self._choose(row, None)
        if self._constraint is not None and not self._constraint.take(token):
            token = self._choose(row, self._constraint.allowed(row, self._n_needed))
            if not self._constraint.take(token):
                raise _no_token("what the constraint allows cannot be chosen")
        return Choice(token, self._rank(original, token) if wanted is not None else None)

    def accept(self, token: int) -> None:
        """Tell what has become part of the text."""
        for remember in self._memories:
            remember(token)

    def _choose(self, row: Row, allowed: Ids | None) -> int:
        """A token of `allowed` (None: of all)."""
        values = row if allowed is None else row[allowed]
        if not values.size:
            raise _no_token("the constraint allows none")
        if self._chain is None:
            best = int(values.argmax())
            if values[best] == -np.inf:
                raise _no_token("all are forbidden")
            return best if allowed is None else int(allowed[best])
        few = self._sieve(values)
        if few is None and (self._forbids or allowed is not None):
            # A stage that takes the logarithm of a probability would make NaN of a forbidden one.
            few = np.flatnonzero(values > -np.inf)
        ids = allowed[few] if few is not None and allowed is not None else few
        if ids is not None and not ids.size:
            raise _no_token("all are forbidden")
        return self._chain.draw(row, ids)

    def _rank(self, original: Row, token: int) -> Ranked:
        assert self._wanted is not None
        if not self._wanted.after_sampling:
            return before_sampling(original, token, self._wanted.n)
        if self._chain is None:
            return Ranked(1.0, ((token, 1.0),)[: self._wanted.n])
        return after_sampling(*self._chain.chances(), token, self._wanted.n)


def _no_token(reason: str) -> RequestError:
    return RequestError(f"cannot choose a token: {reason}", kind="no-token")
