"""How many prompt tokens may go into a step that also carries streams. Pure: times come in as they were measured.

A stream waits for the whole step, so prompts get at most a *share* of a step's time: at 0.8 a step with prompts takes up
to five times as long as one without. How many tokens that is depends on the machine, the model and the depth of the
context, so it is learnt: what a step takes that carries streams alone, and what a prompt token adds to it. Both are
running means, because context grows and machines are shared. Until both are known a fixed count stands in.

llama-server has no such bound: there a prompt takes all of a batch, and streams wait for `batch-size` tokens.
"""

from __future__ import annotations

SHARE_DEFAULT = 0.8
# With fewer, ggml's attention on a CPU leaves its tiles, and a token costs three times as much: measured at 1,000 tokens
# of context, 48 at once took twice as long as 64.
N_MIN = 64
N_UNKNOWN = 128
"""On a CPU as many at once cost no more each than 512."""
# How much one step weighs in the running means.
_WEIGHT = 0.2
# Shorter steps harm no stream, and are too short to learn from.
_SECONDS_MIN = 0.001


class Budget:
    """`share`: of a step's time, 0 to 1 (no bound). `n_step`: tokens that a step can have at most."""

    def __init__(self, share: float, n_step: int) -> None:
        self._share = share
        self._n_step = n_step
        self._stream_s: float | None = None
        self._token_s: float | None = None

    @property
    def n_beside(self) -> int:
        """Prompt tokens that the next step may have if it carries streams."""
        if self._share >= 1:
            return self._n_step
        if self._stream_s is None or self._token_s is None:
            return min(N_UNKNOWN, self._n_step)
        allowed_s = self._stream_s * self._share / (1 - self._share)
        return min(max(N_MIN, int(allowed_s / self._token_s)), self._n_step)

    def learn(self, seconds: float, n_prompt: int, n_stream: int) -> None:
        """A decode call with so many tokens of prompts and of streams took so long."""
        if seconds < _SECONDS_MIN:
            return
        if not n_prompt:
            self._stream_s = _mean(self._stream_s, seconds)
            return
        # A few tokens say little of what each of many costs.
        rest_s = seconds - (self._stream_s or 0.0 if n_stream else 0.0)
        if n_prompt >= N_MIN and rest_s > 0:
            self._token_s = _mean(self._token_s, rest_s / n_prompt)


def _mean(before: float | None, now: float) -> float:
    return now if before is None else before + _WEIGHT * (now - before)
