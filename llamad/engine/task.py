"""A request's life inside the engine, from the queue to its last word.

A task owns everything that must survive a change of slot: the tokens so far, the sampler with its random state, the
text that is held back, the clock readings. What the context's memory has of it belongs to the slot.
"""

from __future__ import annotations

from llamad.engine.logprobs import Held
from llamad.engine.sampling import Sampler
from llamad.engine.text import TextStream
from llamad.engine.vocabulary import SEED_RANDOM, Finished, GenerateRequest, Likelihood, Text, Timings


class Task:
    """`tokens`: the prompt and what was generated after it. `reason` is set when the answer is complete."""

    def __init__(self, request: GenerateRequest, sampler: Sampler, n_ctx: int) -> None:
        """`n_ctx`: the most tokens the sequence may have."""
        self.request = request
        self.tokens = list(request.tokens)
        self.sampler = sampler
        self.reason: str | None = None
        self.n_predicted = 0
        self.n_cached = 0
        self._n_ctx = n_ctx
        self._stream = TextStream(request.stop)
        self._n_sent = 0
        self._likelihoods: Held[Likelihood] = Held()
        self._stop_word = ""
        self._unreported = 0
        self._started_at: float | None = None
        self._first_token_at: float | None = None

    @property
    def id(self) -> int:
        return self.request.id

    @property
    def repeatable(self) -> bool:
        """Does the client expect the same answer to the same request?"""
        sampling = self.request.sampling
        return self.request.cache_prompt and (sampling.temperature <= 0 or sampling.seed != SEED_RANDOM)

    def start(self, n_cached: int, now: float) -> None:
        """Work begins, with `n_cached` tokens of the prompt in place. Beginning again changes no record of the first."""
        if self._started_at is None:
            self._started_at = now
            self.n_cached = n_cached

    def take(
        self, token: int, piece: bytes, end_of_text: bool, now: float, likelihood: Likelihood | None = None
    ) -> Text | None:
        """One more sampled token. Sets `reason` if it was the last one; gives the text that became final."""
        if self._first_token_at is None:
            self._first_token_at = now
        self.n_predicted += 1
        self._unreported += 1
        text, stop_word = "", None
        if not end_of_text:
            self.tokens.append(token)
            self.sampler.accept(token)
            text, stop_word = self._stream.push(piece)
        if likelihood is not None:
            self._likelihoods.push(likelihood, self._stream.end)
        if stop_word is not None:
            self.reason, self._stop_word = "stop", stop_word
        elif end_of_text or self.sampler.complete:
            return self.end("stop", before=text)
        elif self._is_full():
            return self.end("length", before=text)
        return self._text(text)

    def end(self, reason: str, before: str = "") -> Text | None:
        """Complete the answer; gives the text that was held back, after `before`."""
        self.reason = reason
        return self._text(before + self._stream.flush(), last=True)

    def finished(self, slot: int, now: float) -> Finished:
        """The last word."""
        started = now if self._started_at is None else self._started_at
        first = now if self._first_token_at is None else self._first_token_at
        timings = Timings(
            prompt_tokens=len(self.request.tokens),
            cached_tokens=self.n_cached,
            prompt_ms=(first - started) * 1000,
            predicted_tokens=self.n_predicted,
            predicted_ms=(now - first) * 1000,
        )
        return Finished(self.id, self.reason or "stop", self._stop_word, timings, slot, self.sampler.seed)

    def _is_full(self) -> bool:
        limit = self.request.max_tokens
        return 0 <= limit <= self.n_predicted or len(self.tokens) >= self._n_ctx

    def _text(self, text: str, last: bool = False) -> Text | None:
        self._n_sent += len(text)
        if not text and not last:
            return None
        likelihoods = self._likelihoods.rest() if last else self._likelihoods.release(self._n_sent)
        if not text and not likelihoods:
            return None
        count, self._unreported = self._unreported, 0
        return Text(self.id, text, count, likelihoods)
