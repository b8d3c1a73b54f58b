"""What all dialects say of an answer: usage, timings, and the head that each document repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from llamad.api.sse import Framing
from llamad.engine.vocabulary import Finished, Likelihood, Progress, Text, Timings
from llamad.errors import LlamadError


@dataclass(frozen=True, slots=True)
class Head:
    """One answer's identity. `created` in seconds since the epoch, `model` as the client asked for it."""

    id: str
    created: int
    model: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Whole:
    """One finished sequence: all its text, the last word on it, how likely its tokens were, if that is wanted, and the
    tokens themselves. `pieces`: the text as it came."""

    text: str
    finished: Finished
    likelihoods: tuple[Likelihood, ...] = ()
    ids: tuple[int, ...] = ()
    pieces: tuple[Text, ...] = ()


class Dialect(Protocol):
    """How one kind of answer is written: as a whole, or as the documents of a stream."""

    framing: Framing

    def whole(self, answers: Sequence[Whole]) -> Any:
        """The document of a plain answer."""
        ...

    def opening(self) -> list[Any]:
        """What comes before the first text."""
        ...

    def piece(self, index: int, text: Text) -> list[Any]:
        """New text of sequence `index`; none where it is not certain yet what the text is."""
        ...

    def frames(self, index: int, text: Text) -> bytes:
        """The frames of `piece`."""
        ...

    def progress(self, index: int, progress: Progress) -> list[Any]:
        """How far the prompt of sequence `index` is; only for a request that asks for it."""
        ...

    def ending(self, index: int, finished: Finished) -> list[Any]:
        """The last word on sequence `index`."""
        ...

    def closing(self, finished: Sequence[Finished]) -> list[Any]:
        """What comes after the last word on the last sequence."""
        ...

    def failure(self, error: LlamadError) -> Any:
        """The last document of a stream that cannot be finished."""
        ...


class Framed:
    """A dialect that frames its pieces one by one."""

    framing: Framing

    def piece(self, index: int, text: Text) -> list[Any]:
        """See Dialect."""
        raise NotImplementedError

    def frames(self, index: int, text: Text) -> bytes:
        """The frames of `piece`."""
        return self.framing.frames(self.piece(index, text))


def usage(parts: Sequence[Timings]) -> dict[str, Any]:
    """OpenAI's `usage` over all sequences of a request. A prompt counts once, however many answers there are to it."""
    prompts = [part for part in parts if not part.shared]
    prompt = sum(part.prompt_tokens for part in prompts)
    predicted = sum(part.predicted_tokens for part in parts)
    return {
        "completion_tokens": predicted,
        "prompt_tokens": prompt,
        "total_tokens": prompt + predicted,
        "prompt_tokens_details": {"cached_tokens": sum(part.cached_tokens for part in prompts)},
    }


def timings(cost: Timings) -> dict[str, Any]:
    """llama-server's `timings`. `prompt_n` counts what was evaluated, without the `cache_n` that was reused. The first
    token comes with the prompt's last step, so it takes no time and the rate is of those after it."""
    evaluated = cost.prompt_tokens - cost.cached_tokens
    prompt_ms, predicted_ms = round(cost.prompt_ms, 3), round(cost.predicted_ms, 3)
    return {
        "cache_n": cost.cached_tokens,
        "prompt_n": evaluated,
        "prompt_ms": prompt_ms,
        **_rates("prompt", evaluated, prompt_ms),
        "predicted_n": cost.predicted_tokens,
        "predicted_ms": predicted_ms,
        **_rates("predicted", max(0, cost.predicted_tokens - 1), predicted_ms),
        **_drafts(cost),
    }


def _drafts(cost: Timings) -> dict[str, int]:
    if not cost.drafted_tokens:
        return {}
    return {"draft_n": cost.drafted_tokens, "draft_n_accepted": cost.accepted_tokens}


def _rates(name: str, tokens: int, spent_ms: float) -> dict[str, float]:
    return {
        f"{name}_per_token_ms": spent_ms / tokens if tokens else 0.0,
        f"{name}_per_second": tokens * 1000 / spent_ms if spent_ms else 0.0,
    }
