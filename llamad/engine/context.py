"""From settings and a loaded model to the parameters of a context, beside `llama` for whoever only measures."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from llama_cpp import llama_cpp as lib

from llamad.engine import checks
from llamad.engine.embedding import POOLINGS
from llamad.engine.forms import PairForm
from llamad.engine.ggml import Ggml
from llamad.engine.shape import Shape, Traits, shape_of
from llamad.engine.vocabulary import EngineSettings


def meta(model: Any, key: str) -> str:
    """A value of the file's head as text, "" if it is not there."""
    buffer = ctypes.create_string_buffer(256)
    lib.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode(errors="replace")


def read_shape(settings: EngineSettings, model: Any) -> Shape:
    """How the context of a loaded model is laid out. Raises ConfigError."""
    n_ctx_train = int(lib.llama_model_n_ctx_train(model))
    architecture = meta(model, "general.architecture")
    pooling = meta(model, f"{architecture}.pooling_type")
    n_vocab = int(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model)))
    # Only models for vectors are not causal, and those that have learned to be asked for them name a pooling.
    causal = _is_causal(model) if settings.embedding or settings.pooling or pooling else True
    known = pooling.isdecimal() and int(pooling) < len(POOLINGS)
    traits = Traits(
        causal=causal,
        pooling=POOLINGS[int(pooling)] if known else "",
        n_ctx_train=n_ctx_train,
        n_vocab=n_vocab,
        n_embd_out=int(lib.llama_model_n_embd_out(model)),
        ranks=_ranks(settings.path) if settings.pooling == "rank" else True,
    )
    return shape_of(settings, traits)


def _ranks(path: str) -> bool:
    """Is there a classifier head? Models in several files are believed: only the first of them is looked at."""
    try:
        ggml = Ggml()
        with ggml.gguf(os.fsencode(path)) as head:
            return ggml.gguf_parts(head) > 1 or any(
                name.startswith(b"cls") for name in ggml.gguf_offsets(head)
            )
    except (OSError, AttributeError):
        return True


def _is_causal(model: Any) -> bool:
    """Only a context tells, so a small one is made: 10 ms."""
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 32
    context = lib.llama_init_from_model(model, params)
    if not context:
        return True
    try:
        return bool(lib.llama_get_causal_attn(context))
    finally:
        lib.llama_free(context)


def context_params(settings: EngineSettings, shape: Shape) -> Any:
    params = lib.llama_context_default_params()
    params.n_ctx = shape.n_ctx
    params.n_batch, params.n_ubatch = shape.n_batch, shape.n_ubatch
    params.n_seq_max, params.n_outputs_max = shape.n_sequences, shape.n_outputs
    params.n_threads = settings.threads if settings.threads > 0 else len(os.sched_getaffinity(0))
    params.n_threads_batch = settings.threads_batch if settings.threads_batch > 0 else params.n_threads
    params.flash_attn_type = checks.FLASH_ATTN[settings.flash_attn]
    params.type_k = getattr(lib, f"GGML_TYPE_{settings.cache_type_k.upper()}")
    params.type_v = getattr(lib, f"GGML_TYPE_{settings.cache_type_v.upper()}")
    params.kv_unified = shape.kv_unified
    params.swa_full = settings.swa_full
    params.no_perf = True
    if shape.embedding:
        params.embeddings = True
        # All but `rank` is done in llamad.engine.embedding.
        params.pooling_type = POOLINGS.index("rank" if shape.embedding.pooling == "rank" else "none")
    set_extra(params, settings, checks.EXTRA_CONTEXT)
    return params


def set_extra(params: Any, settings: EngineSettings, known: dict[str, type]) -> None:
    for name in settings.extra.keys() & known.keys():
        setattr(params, name, known[name](settings.extra[name]))


def pair_form(model: Any) -> PairForm:
    """llama-server's way to put a query and a document into one input, where the model has no template for it."""
    vocab = lib.llama_model_get_vocab(model)
    template = lib.llama_model_chat_template(model, b"rerank")
    eos, sep = lib.llama_vocab_eos(vocab), lib.llama_vocab_sep(vocab)
    end = (eos if eos >= 0 else sep,) if lib.llama_vocab_get_add_eos(vocab) else ()
    return PairForm(
        template=template.decode(errors="replace") if template else None,
        before=(lib.llama_vocab_bos(vocab),) if lib.llama_vocab_get_add_bos(vocab) else (),
        between=(*end, *((sep,) if lib.llama_vocab_get_add_sep(vocab) else ())),
        after=end,
    )
