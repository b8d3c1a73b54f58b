"""Rows of the option table: vectors and scores instead of text. llama-server's names, meanings and defaults."""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.values import Choice, Flag, Whole

_GROUP = "Instances: embeddings"

ROWS: tuple[Option, ...] = (
    Option(
        "embeddings",
        Flag(),
        "make vectors with a model that generates; those that do nothing else need no telling",
        Scope.INSTANCE,
        _GROUP,
        default=False,
        also=("embedding",),
        env=("LLAMA_ARG_EMBEDDINGS",),
    ),
    Option(
        "pooling",
        Choice(("none", "mean", "cls", "last", "rank")),
        "how the vectors of an input's tokens become one",
        Scope.INSTANCE,
        _GROUP,
        default_text="the model's own",
    ),
    Option(
        "embd-normalize",
        Whole(-1, 1_000_000),
        "length of vectors: -1 as it comes, 0 largest value 32760, 1 taxicab, 2 Euclidean, more: p-norm; a request "
        "may say otherwise",
        Scope.INSTANCE,
        _GROUP,
        default=2,
    ),
    Option(
        "reranking",
        Flag(),
        "score documents: embeddings, with the pooling rank",
        Scope.INSTANCE,
        _GROUP,
        default=False,
        also=("rerank",),
        env=("LLAMA_ARG_RERANKING",),
    ),
)
