"""How many tokens an answer took, from the end of its own bytes: for keys with a limit of tokens only. Pure.

The front counts what its clients get, an instance what of a conversation went on without one.

An answer of one piece ends with OpenAI's `usage`, a stream with it or with llama-server's `timings`. Of one that was cut
short there is neither; then each event counts for a token, and the request for one token each four bytes, so that
hanging up before the end is no way around a limit.
"""

from __future__ import annotations

import re

TAIL_BYTES = 8 * 1024
BYTES_PER_TOKEN = 4

_TOTAL = re.compile(rb'"total_tokens"\s*:\s*([0-9]{1,9})')
_PROMPT = re.compile(rb'"(?:prompt_n|prompt_tokens|input_tokens|cache_n)"\s*:\s*([0-9]{1,9})')
_ANSWER = re.compile(rb'"(?:predicted_n|completion_tokens|output_tokens)"\s*:\s*([0-9]{1,9})')
_EVENT = b"\n\n"


class Meter:
    """Reads along with one answer, in bounded memory."""

    def __init__(self, request_bytes: int) -> None:
        self._request_bytes = request_bytes
        self._tail = b""
        self._events = 0

    def feed(self, chunk: bytes) -> None:
        self._events += chunk.count(_EVENT)
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]

    def tokens(self) -> int:
        """The last total that the answer says, else what can be guessed."""
        totals = _TOTAL.findall(self._tail)
        if totals:
            return int(totals[-1])
        answer = _ANSWER.findall(self._tail)
        if answer:
            return int(answer[-1]) + sum(int(count) for count in _PROMPT.findall(self._tail)[-2:])
        return self._events + self._request_bytes // BYTES_PER_TOKEN
