"""A request's life inside the engine, from the queue to its last word.

A task owns everything that must survive a change of slot: the tokens so far, the sampler with its random state, the
text that is held back, the clock readings. What the context's memory has of it belongs to the slot.
"""

from __future__ import annotations

import math
from dataclasses import replace

from llamad.engine import shift
from llamad.engine.logprobs import Held
from llamad.engine.sampling import Sampler
from llamad.engine.text import TextStream
from llamad.engine.vocabulary import (
    SEED_RANDOM,
    Finished,
    GenerateRequest,
    Likelihood,
    ModelFacts,
    Progress,
    Text,
    Timings,
)


class Task:
    """`tokens`: the prompt and what was generated after it, without what a shift has dropped, evaluated with `adapters`.

    `reason` is set when the answer is complete.
    """

    def __init__(self, request: GenerateRequest, sampler: Sampler, facts: ModelFacts) -> None:
        self.request = request
        self.tokens = list(request.tokens)
        self.adapters = request.adapters or ()
        self.sampler = sampler
        self.reason: str | None = None
        self.truncated = False
        self.n_shifts = 0
        self.n_predicted = 0
        self.n_cached = 0
        self.n_drafted = 0
        """Tokens that were drafted and evaluated."""
        self.n_accepted = 0
        """Those of them that were sampled, too."""
        self._n_ctx, self._shifts = facts.n_ctx_slot, facts.shifts
        # Without a limit an answer that shifts would go on for ever.
        self._n_total_max = max(facts.n_ctx_slot, facts.n_ctx_train) if request.max_tokens < 0 else math.inf
        self._n_kept = shift.keep(request.n_keep, len(request.tokens), facts.n_ctx_slot, facts.add_bos)
        self._shown = dict(request.shown)
        self._stream = TextStream(request.stop, request.n_indent)
        self._n_sent = 0
        self._likelihoods: Held[Likelihood] = Held()
        self._stop_word = ""
        self._unreported: list[int] = []
        self._slot = -1
        self.has_new_line = False
        self._kept: list[str] = []
        self._started_at: float | None = None
        self._first_token_at: float | None = None
        if self.overflows:
            self._drop(shift.overlong(len(self.tokens), self._n_kept, self._n_ctx))
        self._n_prompt = len(self.tokens)

    @property
    def overflows(self) -> bool:
        """Has it more tokens than the context, and may it go on?"""
        return self._shifts and len(self.tokens) >= self._n_ctx

    def shift(self) -> tuple[int, int]:
        """Drop a part of the tokens: where it began, and how many they were."""
        return self._drop(shift.discard(len(self.tokens), self._n_kept, self.request.n_discard))

    @property
    def id(self) -> int:
        return self.request.id

    @property
    def repeatable(self) -> bool:
        """Does the client expect the same answer to the same request?"""
        sampling = self.request.sampling
        return self.request.cache_prompt and (sampling.temperature <= 0 or sampling.seed != SEED_RANDOM)

    def can_follow(self, other: Task) -> bool:
        """Is the other one about to evaluate exactly what this one needs?"""
        family = self.request.family
        same = (self.tokens, self.adapters) == (other.tokens, other.adapters)
        return family != 0 and family == other.request.family and same

    def start(self, slot: int, n_cached: int, now: float) -> None:
        """Work begins, with `n_cached` tokens of the prompt in place. Beginning again changes no other record of the first."""
        self._slot = slot
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
        self._unreported.append(token)
        text, stop_word = "", None
        if not end_of_text:
            self.tokens.append(token)
            self.sampler.accept(token)
            text, stop_word = self._stream.push(self._shown.get(token, piece))
        if likelihood is not None:
            self._likelihoods.push(likelihood, self._stream.end)
        if stop_word is not None:
            self.reason, self._stop_word = "stop", stop_word
        elif end_of_text or self.sampler.complete:
            return self.end("stop", now, before=text)
        elif self._stream.outdented or self._is_full() or self._is_late(text, now):
            return self.end("length", now, before=text)
        return self._text(text, now)

    def end(self, reason: str, now: float, before: str = "") -> Text | None:
        """Complete the answer; gives the text that was held back, after `before`."""
        self.reason = reason
        return self._text(before + self._stream.flush(), now, last=True)

    def cut(self, now: float) -> Text | None:
        """There is no room for more: complete the answer as `end` does."""
        self.truncated = True
        return self.end("length", now)

    def progress(self, processed: int, now: float) -> Progress | None:
        """`processed` tokens of the prompt are in the memory: what there is to tell of that, if it is wanted."""
        total = self._n_prompt
        if not self.request.tell_progress or self.n_predicted or processed > total:
            return None
        so_far = replace(self._timings(now), prompt_tokens=processed)
        told = so_far if self.request.tell_timings else None
        return Progress(self.id, total, self.n_cached, processed, so_far.prompt_ms, told)

    def finished(self, now: float) -> Finished:
        """The last word."""
        return Finished(
            self.id,
            self.reason or "stop",
            self._stop_word,
            self._timings(now),
            self._slot,
            self.sampler.seed,
            ids=tuple(self._unreported),
            truncated=self.truncated,
        )

    def _timings(self, now: float) -> Timings:
        started = now if self._started_at is None else self._started_at
        first = now if self._first_token_at is None else self._first_token_at
        return Timings(
            prompt_tokens=self._n_prompt,
            cached_tokens=self.n_cached,
            prompt_ms=(first - started) * 1000,
            predicted_tokens=self.n_predicted,
            predicted_ms=(now - first) * 1000,
            shared=self.request.is_sibling,
            drafted_tokens=self.n_drafted,
            accepted_tokens=self.n_accepted,
        )

    def _is_full(self) -> bool:
        limit = self.request.max_tokens
        if 0 <= limit <= self.n_predicted:
            return True
        full = not self._shifts and len(self.tokens) >= self._n_ctx
        endless = len(self.request.tokens) + self.n_predicted >= self._n_total_max
        self.truncated |= full or endless
        return full or endless

    def _drop(self, count: int) -> tuple[int, int]:
        begin = self._n_kept
        del self.tokens[begin : begin + count]
        self.n_shifts += 1
        self.truncated = True
        return begin, count

    def _is_late(self, text: str, now: float) -> bool:
        limit_ms, first = self.request.time_limit_ms, self._first_token_at
        return limit_ms > 0 and first is not None and (now - first) * 1000 > limit_ms and "\n" in text

    def _text(self, text: str, now: float, last: bool = False) -> Text | None:
        self._n_sent += len(text)
        self.has_new_line = self.has_new_line or "\n" in text
        if not self.request.stream:
            self._kept.append(text)
            if self.reason is None:
                return None
            text = "".join(self._kept)
        if not text and not last:
            return None
        likelihoods = self._likelihoods.rest() if last else self._likelihoods.release(self._n_sent)
        if not text and not likelihoods:
            return None
        ids, self._unreported = tuple(self._unreported), []
        timings = self._timings(now) if self.request.tell_timings else None
        return Text(self.id, text, len(ids), likelihoods, ids, self._slot, timings)
