"""The last steps of a world in words, and a digest of all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import MISSING, fields
from hashlib import blake2b
from typing import Any

from llamad.core.actions import Action
from llamad.core.events import Event

KEPT = 40


class Transcript:
    """Keeps events and actions as they are and turns them into words only when somebody asks."""

    def __init__(self, *, kept: int = KEPT, digests: bool = False) -> None:
        self._steps: deque[tuple[int, float, Event, Sequence[Action]]] = deque(maxlen=kept)
        self._digest = blake2b(digest_size=16) if digests else None

    def add(self, number: int, now: float, event: Event, actions: Sequence[Action]) -> None:
        self._steps.append((number, now, event, actions))
        if self._digest is not None:
            self._digest.update(f"{now!r} {event!r} {actions!r}\n".encode())

    def digest(self) -> str:
        """Equal for equal worlds. Needs `digests`."""
        assert self._digest is not None
        return self._digest.hexdigest()

    def __str__(self) -> str:
        return "\n".join(
            "\n".join(
                [f"{number:>7} {now:>12.3f}  {words(event)}", *(f"{'->':>24} {words(x)}" for x in actions)]
            )
            for number, now, event, actions in self._steps
        )


def words(value: Any) -> str:
    """`LeaseAsked(worker 1 lease 7, model='m2')`: what differs from the defaults."""
    shown = []
    for field in fields(value):
        content = getattr(value, field.name)
        if field.name == "key":
            shown.append(f"worker {content.worker} lease {content.lease}")
        elif field.name == "models":
            shown.append(f"models=[{', '.join(words(entry) for entry in content)}]")
        elif field.name == "limits":
            shown.append(words(content))
        elif not _is_default(field, content):
            shown.append(f"{field.name}={content!r}")
    return f"{type(value).__name__}({', '.join(shown)})"


def _is_default(field: Any, content: Any) -> bool:
    if field.default_factory is not MISSING:
        return bool(content == field.default_factory())
    return field.default is not MISSING and bool(content == field.default)
