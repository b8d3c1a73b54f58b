"""Process titles: what `ps` and `top` show of a child."""

from __future__ import annotations

import setproctitle

NAME_CHARS_MAX = 80


class Title:
    """`llamad: instance qwen3-8b [loaded]`. Setting the same words twice costs nothing."""

    def __init__(self, role: str, name: str = "") -> None:
        self._head = f"llamad: {role} {name[:NAME_CHARS_MAX]}".rstrip()
        self._words = ""

    def show(self, words: str) -> None:
        """Set the state between the brackets."""
        if words == self._words:
            return
        self._words = words
        setproctitle.setproctitle(f"{self._head} [{words}]")
