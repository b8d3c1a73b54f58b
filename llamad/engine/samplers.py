"""From a request to its sampler: seed, chain, what is forbidden, and what its rules and its budget of thought allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llamad.engine.backend import Backend
from llamad.engine.sampling import Constraint, Sampler
from llamad.engine.thought import BoundedThought
from llamad.engine.vocabulary import SEED_RANDOM, GenerateRequest, Rules
from llamad.errors import RequestError

if TYPE_CHECKING:
    from llamad.engine.guidance import Guide

RULES_CHARS_MAX = 256 * 1024
# What a prepared vocabulary takes for as long as the model is loaded: 427 with 49,152 tokens, 476 with 262,144.
RULES_BYTES_PER_TOKEN = 480


class Samplers:
    """Makes samplers: one with rules on the workshop's thread, any other on any."""

    def __init__(self, backend: Backend, draw_seed: Callable[[], int]) -> None:
        self._backend = backend
        self._draw_seed = draw_seed
        self._rulebook = Rulebook(backend)

    def make(self, request: GenerateRequest) -> Sampler:
        """RequestError for rules that cannot be honoured."""
        params, backend = request.sampling, self._backend
        return Sampler(
            params,
            self._draw_seed() if params.seed == SEED_RANDOM else params.seed,
            backend.chain,
            history=request.tokens,
            n_ctx=backend.facts.n_ctx_slot,
            forbidden=backend.eog_tokens() if params.ignore_eos else (),
            constraint=self._constraint(request),
            wanted=request.wanted,
        )

    def _constraint(self, request: GenerateRequest) -> Constraint | None:
        rules = self._rulebook.constraint(request.rules) if request.rules else None
        limit = request.thought
        if limit is None:
            return rules
        shown, piece = dict(request.shown), self._backend.piece
        ending = self._backend.tokenize(limit.ending, False, True)
        return BoundedThought(limit, ending, lambda token: shown.get(token) or piece(token), rules)


class Rulebook:
    """Constraints for one vocabulary, which is prepared when the first is asked for. Belongs to one thread."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._guide: Guide | None = None

    def constraint(self, rules: Rules) -> Constraint:
        """RequestError for rules that cannot be honoured."""
        size = len(rules.text) + sum(len(part.text) for _, part in rules.parts)
        if size > RULES_CHARS_MAX:
            raise RequestError(
                f"cannot honour rules of {size} characters: {RULES_CHARS_MAX} at most",
                kind="unsupported-grammar" if rules.kind == "gbnf" else "unsupported-schema",
            )
        if self._guide is None:
            # 65 ms and some memory that most models never need.
            from llamad.engine.guidance import Guide

            self._guide = Guide(self._backend.pieces(), self._backend.eog_tokens())
        return self._guide.compile(rules)
