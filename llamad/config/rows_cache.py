"""Rows of the option table: what an instance keeps of prompts, and for how long. llama-server's names and meanings."""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.values import Flag, Number, Text, Whole

_KEEPING = "Instances: what is kept of prompts"
_ALL = Scope.INSTANCE

ROWS: tuple[Option, ...] = (
    Option(
        "context-shift",
        Flag(),
        "answers and prompts may be longer than the context: the oldest part is dropped, for models that can do that",
        _ALL,
        _KEEPING,
        default=False,
        negatives=("no-context-shift",),
    ),
    Option(
        "keep",
        Whole(-1, 2**31 - 1),
        "tokens of the prompt that context-shift never drops, -1 for all of it",
        _ALL,
        _KEEPING,
        default=0,
    ),
    Option(
        "cache-ram",
        Whole(0, 2**24),
        "MiB of the host's memory for states of prompts that lost their slot and for checkpoints, booked as the model's; 0 for none",
        _ALL,
        _KEEPING,
        default=512,
        also=("cram",),
    ),
    Option(
        "cache-idle-slots",
        Flag(),
        "keep the state of an idle slot in cache-ram when it must make room for others",
        _ALL,
        _KEEPING,
        default=True,
        negatives=("no-cache-idle-slots",),
    ),
    Option(
        "ctx-checkpoints",
        Whole(0, 1024),
        "checkpoints a slot in cache-ram, for models whose memory cannot be cut back (sliding windows, recurrent ones)",
        _ALL,
        _KEEPING,
        default=32,
        also=("ctxcp", "swa-checkpoints"),
    ),
    Option(
        "checkpoint-min-step",
        Whole(0, 2**31 - 1),
        "tokens from one checkpoint to the next, beside the one near the end of each prompt",
        _ALL,
        _KEEPING,
        default=1024,
        also=("cms",),
        env=("LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT",),
    ),
    Option(
        "slot-prompt-similarity",
        Number(0, 1),
        "a slot is chosen for what it remembers if that is more than this part of the prompt",
        _ALL,
        _KEEPING,
        default=0.1,
        also=("sps",),
    ),
    Option(
        "cache-reuse",
        Whole(0, 2**31 - 1),
        "move chunks of at least so many tokens to where a prompt has them again, 0 for never; answers are then not quite"
        " those of the whole prompt, so requests with a seed or at temperature 0 must ask for it themselves (n_cache_reuse)",
        _ALL,
        _KEEPING,
        default=0,
    ),
    Option(
        "slot-save-path",
        Text("DIR", may_be_empty=False, directory=True),
        "directory for what slots remember (POST /slots/ID?action=save, restore, erase)",
        _ALL,
        _KEEPING,
    ),
)
