"""Vectors from an engine and from llama.cpp itself, for tests/model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from llamad.engine.vocabulary import Embedded, EmbedRequest
from tests.engine.live import Live

POOLINGS = ("none", "mean", "cls", "last", "rank")


def embed(live: Live, inputs: Sequence[Sequence[int]], **fields: Any) -> list[np.ndarray]:
    """The vectors of these inputs by a live engine, in one request."""
    id = submit(live, inputs, **fields)
    live.wait(id)
    end = live.ends[id]
    assert isinstance(end, Embedded), end
    return [np.frombuffer(vector, np.float32).reshape(-1, end.width) for vector in end.vectors]


def submit(live: Live, inputs: Sequence[Sequence[int]], **fields: Any) -> int:
    id = live.next_id()
    live.engine.submit(EmbedRequest(id, tuple(map(tuple, inputs)), **fields))
    return id


def by_llama_cpp(path: Path, inputs: Sequence[Sequence[int]], pooling: str) -> list[np.ndarray]:
    """The same by llama.cpp's own calls, one sequence in one batch at a time, pooled by llama.cpp; not normalised."""
    from llama_cpp import llama_cpp as lib

    from llamad.engine import llama

    lib.llama_log_set(llama._to_log, None)
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(os.fsencode(path), lib.llama_model_default_params())
    longest = max(map(len, inputs))
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = longest
    params.embeddings = True
    params.pooling_type = POOLINGS.index(pooling)
    context = lib.llama_init_from_model(model, params)
    batch = lib.llama_batch_init(longest, 0, 1)
    try:
        return [_one(lib, model, context, batch, tokens, pooling) for tokens in inputs]
    finally:
        lib.llama_batch_free(batch)
        lib.llama_free(context)
        lib.llama_model_free(model)


def _one(lib: Any, model: Any, context: Any, batch: Any, tokens: Sequence[int], pooling: str) -> np.ndarray:
    lib.llama_memory_clear(lib.llama_get_memory(context), True)
    batch.n_tokens = len(tokens)
    for position, token in enumerate(tokens):
        batch.token[position], batch.pos[position] = token, position
        batch.n_seq_id[position], batch.seq_id[position][0] = 1, 0
        batch.logits[position] = 1
    assert lib.llama_decode(context, batch) == 0
    if pooling == "none":
        shape = (len(tokens), lib.llama_model_n_embd_out(model))
        return np.ctypeslib.as_array(lib.llama_get_embeddings(context), shape).copy()
    width = lib.llama_model_n_cls_out(model) if pooling == "rank" else lib.llama_model_n_embd_out(model)
    return np.ctypeslib.as_array(lib.llama_get_embeddings_seq(context, 0), (1, width)).copy()


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    """The least, over all rows."""
    product = (left * right).sum(axis=-1, dtype=np.float64)
    return float((product / np.linalg.norm(left, axis=-1) / np.linalg.norm(right, axis=-1)).min())
