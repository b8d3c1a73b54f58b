"""Rows of the option table: speculative decoding. llama-server's names, meanings and defaults."""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.values import Choice, Flag, Listing, Matching, Number, Text, Whole

_GROUP = "Instances: speculative decoding (the same answers, perhaps faster)"
_ALL = Scope.INSTANCE
_KV_TYPES = Choice(("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"))
_SIZE = Whole(1, 1024)
_TYPES = ("none", "ngram-simple", "ngram-map-k", "ngram-mod", "draft-simple")


def _own(name: str, kind: Whole, help: str, default: int) -> Option:
    """An option that has one name and a default."""
    return Option(name, kind, help, _ALL, _GROUP, default=default)


ROWS: tuple[Option, ...] = (
    Option(
        "spec-type",
        Listing("TYPE,…", item="|".join(_TYPES), what=f"one of {', '.join(_TYPES)}"),
        "who drafts: look-ups in what has been said (ngram-…) or a small model (draft-simple), the first that can",
        _ALL,
        _GROUP,
        default_text="none, or draft-simple with a draft model",
    ),
    Option(
        "spec-default",
        Flag(),
        "the same as spec-type ngram-mod with its defaults",
        _ALL,
        _GROUP,
        default=False,
    ),
    Option(
        "spec-draft-model",
        Text("FILE", may_be_empty=False, path=True),
        "the small model; it must have the same vocabulary",
        _ALL,
        _GROUP,
        default_text="none",
        also=("md", "model-draft"),
    ),
    Option(
        "spec-draft-n-max",
        Whole(0, 1024),
        "most tokens that it drafts at once",
        _ALL,
        _GROUP,
        default=3,
        also=("draft", "draft-n", "draft-max"),
    ),
    Option(
        "spec-draft-n-min",
        Whole(0, 1024),
        "a shorter draft of it is not used",
        _ALL,
        _GROUP,
        default=0,
        also=("draft-min", "draft-n-min"),
    ),
    Option(
        "spec-draft-p-min",
        Number(0.0, 1.0),
        "its draft ends before a token that is less likely",
        _ALL,
        _GROUP,
        default=0.0,
        also=("draft-p-min",),
    ),
    Option(
        "spec-draft-ngl",
        Whole(-1, 10_000, words={"all": -1, "auto": -1}),
        "its layers on the GPU, or all",
        _ALL,
        _GROUP,
        default=-1,
        default_text="all",
        also=("ngld", "gpu-layers-draft", "n-gpu-layers-draft"),
        env=("LLAMA_ARG_N_GPU_LAYERS_DRAFT",),
    ),
    Option(
        "spec-draft-device",
        Matching(r"[^\s,]+(,[^\s,]+){0,15}", "a name, or several with commas between", hint="DEV1,DEV2,…"),
        "GPUs for it by name, or none",
        _ALL,
        _GROUP,
        default_text="the model's",
        also=("devd", "device-draft"),
    ),
    Option(
        "spec-draft-threads",
        Whole(-1, 1024),
        "its threads, -1 for the model's",
        _ALL,
        _GROUP,
        default=-1,
        also=("td", "threads-draft"),
    ),
    Option(
        "spec-draft-threads-batch",
        Whole(-1, 1024),
        "its threads for prompts, -1 for the same",
        _ALL,
        _GROUP,
        default=-1,
        also=("tbd", "threads-batch-draft"),
    ),
    Option(
        "spec-draft-type-k",
        _KV_TYPES,
        "KV type of its keys",
        _ALL,
        _GROUP,
        default="f16",
        also=("ctkd", "cache-type-k-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",),
    ),
    Option(
        "spec-draft-type-v",
        _KV_TYPES,
        "KV type of its values",
        _ALL,
        _GROUP,
        default="f16",
        also=("ctvd", "cache-type-v-draft"),
        env=("LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",),
    ),
    _own("spec-ngram-simple-size-n", _SIZE, "ngram-simple: tokens that must have been there before", 12),
    _own("spec-ngram-simple-size-m", _SIZE, "ngram-simple: tokens that it drafts at most", 48),
    _own("spec-ngram-simple-min-hits", Whole(1), "ngram-simple: how often they must have been there", 1),
    _own("spec-ngram-map-k-size-n", _SIZE, "ngram-map-k: tokens that must have been there before", 12),
    _own("spec-ngram-map-k-size-m", _SIZE, "ngram-map-k: tokens that it drafts at most", 48),
    _own("spec-ngram-map-k-min-hits", Whole(1), "ngram-map-k: how often they must have been there", 1),
    _own("spec-ngram-mod-n-match", _SIZE, "ngram-mod: tokens that must have been there before", 24),
    _own("spec-ngram-mod-n-min", Whole(0, 1024), "ngram-mod: a shorter draft is not used", 48),
    _own("spec-ngram-mod-n-max", Whole(0, 1024), "ngram-mod: tokens that it drafts at most", 64),
)
