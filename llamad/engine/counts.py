"""What an engine counts, from its start on. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """The fields are those of `vocabulary.EngineStats`."""

    steps: int = 0
    decoded_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    predicted_tokens: int = 0
    done: int = 0
    cancelled: int = 0
    failed: int = 0
    generating_max: int = 0
    busy_steps: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0
    sequence_tokens_max: int = 0
    drafts: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    def step(self, n_slots: int, n_prompt: int, n_generating: int, n_drafted: int) -> None:
        """A decode call with so many tokens of each kind; each slot that generates has one that is no draft."""
        self.steps += 1
        self.busy_steps += n_slots
        self.decoded_tokens += n_prompt + n_generating + n_drafted
        self.prompt_tokens += n_prompt
        self.generating_max = max(self.generating_max, n_generating)

    def judge(self, n_drafted: int, n_accepted: int) -> None:
        """A draft that was evaluated, and how much of it has come true."""
        self.drafts += 1
        self.drafted_tokens += n_drafted
        self.accepted_tokens += n_accepted
