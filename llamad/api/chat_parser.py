"""Readers of a model's answers: text in, deltas out (`llamad.api.deltas`)."""

from __future__ import annotations

from llamad.api.deltas import Content, Delta


class PlainParser:
    """For answers that are nothing but text."""

    def push(self, text: str, /) -> list[Delta]:
        """All of it, at once."""
        return [Content(text)] if text else []

    def finish(self) -> list[Delta]:
        """Nothing is held back."""
        return []
