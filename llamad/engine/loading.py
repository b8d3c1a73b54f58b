"""Everything that serves one model: its weights and its context, and who drafts for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from llamad.engine import draft_pair, llama
from llamad.engine.draft_lookup import HashedNgrams, LearningNgrams, Ngrams
from llamad.engine.draft_model import DraftModel
from llamad.engine.drafting import Drafter, SpeculationSettings
from llamad.engine.llama import LlamaBackend
from llamad.engine.vocabulary import EngineSettings
from llamad.errors import LlamadError

log = logging.getLogger(__name__)

# Of the progress of a load; a draft model is small.
_DRAFT_PART = 0.1


def load(settings: EngineSettings, progress: Callable[[float], None] = lambda _: None) -> LlamaBackend:
    """`llama.load`, with speculation.

    Raises LlamadError (`load-failed`) too for a draft model that is of no use to the model. A model that cannot take
    tokens back works without speculation, and the log says so.
    """
    draft_settings = of_draft_model(settings)
    if draft_settings is None:
        return _with_drafters(llama.load(settings, progress), settings, None)
    # llama.cpp's log follows the model that was loaded last.
    draft = llama.load(draft_settings, lambda value: progress(_DRAFT_PART * value))
    try:
        backend = llama.load(settings, lambda value: progress(_DRAFT_PART + (1 - _DRAFT_PART) * value))
    except BaseException:
        draft.close()
        raise
    reason = draft_pair.fault(backend, draft)
    if reason:
        backend.close()
        draft.close()
        raise LlamadError(f"cannot use the draft model {draft_settings.path}: {reason}", kind="load-failed")
    return _with_drafters(backend, settings, draft)


def of_draft_model(settings: EngineSettings) -> EngineSettings | None:
    """How to load the draft model of a model, None if it has none: its slots and its context are the same."""
    draft = settings.speculation.draft_model
    if draft is None:
        return None
    return replace(
        settings,
        path=draft.path,
        n_gpu_layers=draft.n_gpu_layers,
        devices=draft.devices or settings.devices,
        tensor_split=(),
        threads=draft.threads or settings.threads,
        threads_batch=draft.threads_batch or draft.threads or settings.threads_batch,
        cache_type_k=draft.cache_type_k,
        cache_type_v=draft.cache_type_v,
        embedding=False,
        pooling="",
        adapters=(),
        speculation=SpeculationSettings(),
    )


def _with_drafters(
    backend: LlamaBackend, settings: EngineSettings, draft: LlamaBackend | None
) -> LlamaBackend:
    speculation = settings.speculation
    if speculation.types and backend.recurrent:
        log.warning("cannot speculate with %s: it cannot take tokens back", settings.path)
        if draft is not None:
            draft.close()
    elif speculation.types:
        drafters = [_drafter(name, speculation, backend, draft) for name in speculation.types]
        backend.speculate(speculation.types, drafters, draft)
    return backend


def _drafter(
    name: str, settings: SpeculationSettings, backend: LlamaBackend, draft: LlamaBackend | None
) -> Drafter:
    match name:
        case "ngram-simple":
            return Ngrams(settings.simple)
        case "ngram-map-k":
            return LearningNgrams(settings.map_k)
        case "ngram-mod":
            return HashedNgrams(settings.mod)
    assert draft is not None
    return DraftModel(draft, settings.draft, backend.facts)
