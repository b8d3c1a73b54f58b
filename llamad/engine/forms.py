"""Inputs of special forms, as a model's vocabulary and its file have them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PairForm:
    """How a query and a document become one input of a model that ranks.

    By `template`, which has `{query}` and `{document}` in it; without one, as tokens before, between and after them.
    """

    template: str | None = None
    before: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FimTokens:
    """The vocabulary's tokens for filling in the middle, -1 for each that it has not.

    `repository` and `separator` come before a project's and a file's name.
    """

    prefix: int = -1
    suffix: int = -1
    middle: int = -1
    repository: int = -1
    separator: int = -1
