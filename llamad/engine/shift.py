"""What is dropped where a request has more tokens than the context: the oldest part of it, behind what is to be kept. Pure.

llama-server's arithmetic. What has been dropped is out of the model's sight; the rest moves down, in the memory too.
"""

from __future__ import annotations

# What a shift leaves free at least, however much is to be kept.
_FREE_MIN = 4


def keep(n_keep: int, n_prompt: int, n_ctx: int, add_bos: bool) -> int:
    """How many of the first tokens stay for ever: as the request asks (< 0: all of its prompt), and the begin token."""
    wanted = n_prompt if n_keep < 0 else n_keep + add_bos
    return max(0, min(wanted, n_ctx - _FREE_MIN))


def discard(n_tokens: int, n_kept: int, n_discard: int) -> int:
    """How many of `n_tokens` to drop behind the first `n_kept`: as asked, else half of the rest; at least one stays."""
    left = n_tokens - n_kept
    return max(1, min(n_discard or left // 2, left - 1))


def overlong(n_prompt: int, n_kept: int, n_ctx: int) -> int:
    """How many tokens of a prompt that is as long as the context, or longer, to drop behind the first `n_kept`.

    Whole blocks of half the context that is not kept, so that the end of a growing conversation keeps its beginning for
    a while, and with it what is in the memory.
    """
    block = (n_ctx - n_kept) // 2
    return (n_prompt - n_kept - block) // block * block
