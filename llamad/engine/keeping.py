"""What an engine is to keep of prompts: the options of `config.rows_cache`, as the engine takes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keeping:
    """What an engine keeps of prompts beside its slots.

    `ram_bytes`: at most so much of the host's memory for states. `idle_slots`: the state of an idle slot is kept when it
    must make room. Where a memory cannot be cut back, up to `n_checkpoints` of each slot are kept, at least
    `checkpoint_step` tokens apart. `similarity`: a slot is chosen for what it remembers only if that is so large a part
    of the prompt. `reuse_min`: chunks of at least so many tokens are moved to where a prompt has them again, 0 for never.
    """

    ram_bytes: int = 0
    idle_slots: bool = True
    n_checkpoints: int = 32
    checkpoint_step: int = 1024
    similarity: float = 0.0
    reuse_min: int = 0


NOTHING = Keeping()
