"""Speculation: what may be said about it, and who drafts. Pure.

A *drafter* guesses how a sequence goes on. Its draft is evaluated together with the last token, in one batch, and each
position is then sampled exactly as if it had been reached token by token: as long as what is sampled is what was
drafted, the next position counts, too. So a draft, right or wrong, changes how fast an answer comes and never which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

DRAFTED_MAX = 64
"""Drafted tokens of all slots in one decode call, unless one may have more."""


@dataclass(frozen=True, slots=True)
class NgramSettings:
    """Look for the last `size_n` tokens earlier in the sequence, and draft up to `size_m` that followed there.

    `min_hits`: they must have been there so often.
    """

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1


@dataclass(frozen=True, slots=True)
class HashSettings:
    """Remember of all sequences what followed on `n_match` tokens; draft `n_min` to `n_max` of them."""

    n_match: int = 24
    n_min: int = 48
    n_max: int = 64


@dataclass(frozen=True, slots=True)
class DraftModelSettings:
    """A small model with the same vocabulary. `path`: "" for none; the rest as in EngineSettings.

    It drafts `n_min` to `n_max` tokens, and ends before one that it holds less likely than `p_min`. `threads` and
    `threads_batch` 0: the model's own; `devices` (): the model's own.
    """

    path: str = ""
    n_max: int = 3
    n_min: int = 0
    p_min: float = 0.0
    n_gpu_layers: int = -1
    devices: tuple[str, ...] = ()
    threads: int = 0
    threads_batch: int = 0
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """`types`: who drafts, in this order until one has a draft; () for no speculation."""

    types: tuple[str, ...] = ()
    simple: NgramSettings = field(default_factory=NgramSettings)
    map_k: NgramSettings = field(default_factory=NgramSettings)
    mod: HashSettings = field(default_factory=HashSettings)
    draft: DraftModelSettings = field(default_factory=DraftModelSettings)

    @property
    def draft_model(self) -> DraftModelSettings | None:
        """The small model, if one is to be loaded."""
        return self.draft if "draft-simple" in self.types else None

    def n_drafted(self, n_slots: int, n_step: int) -> int:
        """The most drafted tokens in one decode call: each has logits of its own, a row of the whole vocabulary."""
        return max(0, min(n_slots * self.n_max, max(self.n_max, DRAFTED_MAX), n_step - n_slots))

    @property
    def n_max(self) -> int:
        """The most tokens that any of them drafts at once."""
        most = {
            "ngram-simple": self.simple.size_m,
            "ngram-map-k": self.map_k.size_m,
            "ngram-mod": self.mod.n_max,
            "draft-simple": self.draft.n_max,
        }
        return max((most[name] for name in self.types), default=0)


@dataclass(frozen=True, slots=True)
class Speculative:
    """A request's own limits of speculation, None for the model's. `n_max` 0 turns it off; it cannot be above the model's."""

    n_max: int | None = None
    n_min: int | None = None
    p_min: float | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """A sequence that could do with a draft: of at most `n_max` tokens that follow on `tokens`; 0 for none yet.

    `task` tells requests apart, of which each has one `slot` at a time. Their `tokens` grow at the end, unless
    `n_shifts` has grown, too. `n_min` and `p_min` are the request's own, None for the settings'.
    """

    slot: int
    task: int
    tokens: Sequence[int]
    n_max: int
    n_min: int | None = None
    p_min: float | None = None
    n_shifts: int = 0

    @property
    def sequence(self) -> tuple[int, int]:
        """Names tokens that only grow at their end."""
        return self.task, self.n_shifts


class Drafter(Protocol):
    """Guesses. Used on the engine's thread only, once a step."""

    cost: float
    """What drafting a token takes, in tokens that the model generates one by one."""

    def draft(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """A draft for each wish, [] for none."""
        ...

    def judge(self, task: int, n_drafted: int, n_accepted: int) -> None:
        """Of the first `n_drafted` tokens of the last draft for this task so many have come true."""
        ...
