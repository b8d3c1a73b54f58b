"""The start document of an instance, and what its options mean for the engine and for requests that say nothing.

Option names are llama-server's long ones, with their typed values, as the configuration gives them. Options that are
not read here concern others (the supervisor, the scan).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llamad.api.about import Endpoints
from llamad.api.generation import Generation
from llamad.api.sampling import is_breaker, sampler_names
from llamad.child.chat_options import ChatOptions, parse_chat_options
from llamad.child.speculation_spec import parse_speculation
from llamad.config.file_list import split_scale
from llamad.engine.budget import SHARE_DEFAULT
from llamad.engine.keeping import Keeping
from llamad.engine.vocabulary import AdapterFile, EngineSettings, SamplingParams
from llamad.errors import LlamadError

N_CTX_DEFAULT_MAX = 8192
"""Most that a context is made by default: models of today are trained with more than most machines can hold."""

PING_INTERVAL_S = 30
"""llama-server's."""

EMBD_NORMALIZE = 2
"""llama-server's: vectors of Euclidean length 1."""

CACHE_RAM_MIB = 512
"""All of it is on the memory books from the load on, so it is less than llama-server's 8192."""
SIMILARITY = 0.1
"""llama-server's."""

_ENGINE_OPTIONS = {
    "ctx-size": "n_ctx",
    "parallel": "n_parallel",
    "batch-size": "n_batch",
    "ubatch-size": "n_ubatch",
    "n-gpu-layers": "n_gpu_layers",
    "threads": "threads",
    "threads-batch": "threads_batch",
    "flash-attn": "flash_attn",
    "cache-type-k": "cache_type_k",
    "cache-type-v": "cache_type_v",
    "kv-unified": "kv_unified",
    "mmap": "use_mmap",
    "mlock": "use_mlock",
    "swa-full": "swa_full",
    "context-shift": "context_shift",
    "embeddings": "embedding",
    "pooling": "pooling",
    "split-mode": "split_mode",
    "main-gpu": "main_gpu",
}
_SAMPLING_OPTIONS = {
    "seed": "seed",
    "temperature": "temperature",
    "top-k": "top_k",
    "top-p": "top_p",
    "min-p": "min_p",
    "typical-p": "typical_p",
    "repeat-last-n": "repeat_last_n",
    "repeat-penalty": "repeat_penalty",
    "presence-penalty": "presence_penalty",
    "frequency-penalty": "frequency_penalty",
    "top-n-sigma": "top_n_sigma",
    "xtc-probability": "xtc_probability",
    "xtc-threshold": "xtc_threshold",
    "dry-multiplier": "dry_multiplier",
    "dry-base": "dry_base",
    "dry-allowed-length": "dry_allowed_length",
    "dry-penalty-last-n": "dry_penalty_last_n",
    "adaptive-target": "adaptive_target",
    "adaptive-decay": "adaptive_decay",
    "dynatemp-range": "dynatemp_range",
    "dynatemp-exp": "dynatemp_exponent",
    "mirostat": "mirostat",
    "mirostat-lr": "mirostat_eta",
    "mirostat-ent": "mirostat_tau",
    "ignore-eos": "ignore_eos",
}
_ENDPOINT_OPTIONS = {"slots": "slots", "props": "props", "metrics": "metrics"}
_KEEPING_OPTIONS = {
    "cache-idle-slots": "idle_slots",
    "ctx-checkpoints": "n_checkpoints",
    "checkpoint-min-step": "checkpoint_step",
    "slot-prompt-similarity": "similarity",
    "cache-reuse": "reuse_min",
}
_RULES_OPTIONS = ("grammar", "grammar-file", "json-schema", "json-schema-file")
_OTHER_NAMES = {
    "temp": "temperature",
    "typical": "typical-p",
    "predict": "n-predict",
    "embedding": "embeddings",
    "rerank": "reranking",
}
_LOGIT_BIAS = re.compile(r"(\d{1,9})([+-](?:inf|\d+(?:\.\d+)?))")


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """What to load and how to serve it.

    `ping_interval_s`: how long a stream may be silent before a comment says that it lives; 0 and less: for ever.
    `suffix_first`: `spm-infill`.
    """

    name: str
    token: str
    unix_path: str
    engine: EngineSettings
    defaults: Generation
    chat: ChatOptions
    rules: Mapping[str, str]
    keeping: Keeping
    prefill_budget: float
    slot_save_path: str
    ping_interval_s: int = PING_INTERVAL_S
    endpoints: Endpoints = Endpoints()  # noqa: RUF009 - frozen
    embd_normalize: int = EMBD_NORMALIZE
    suffix_first: bool = False


def parse_spec(body: Mapping[str, Any]) -> InstanceSpec:
    """Raises LlamadError of kind `bad-start` for a document that no supervisor should have sent."""
    options = _with_reranking(_canonical(body.get("options") or {}))
    token, path = body.get("token"), body.get("path")
    if not isinstance(token, str) or not token or not isinstance(path, str) or not path:
        raise LlamadError("cannot start: the start document needs a path and a token", kind="bad-start")
    unix = body.get("transport") == "unix"
    if unix and not body.get("socket"):
        raise LlamadError("cannot start: the start document names no socket", kind="bad-start")
    try:
        return InstanceSpec(
            name=str(body.get("model") or path),
            token=token,
            unix_path=str(body["socket"]) if unix else "",
            engine=EngineSettings(
                path=path,
                **_fields(EngineSettings, _ENGINE_OPTIONS, options),
                **_devices(body, options),
                adapters=_adapters(options),
                speculation=parse_speculation(options),
            ),
            defaults=_defaults(options),
            chat=parse_chat_options(options),
            rules={name: str(options[name]) for name in _RULES_OPTIONS if options.get(name)},
            ping_interval_s=_typed(
                "sse-ping-interval", options.get("sse-ping-interval", PING_INTERVAL_S), int
            ),
            endpoints=Endpoints(**_fields(Endpoints, _ENDPOINT_OPTIONS, options)),
            keeping=_keeping(options),
            slot_save_path=str(options.get("slot-save-path") or ""),
            prefill_budget=_typed("prefill-budget", options.get("prefill-budget", SHARE_DEFAULT), float),
            embd_normalize=_typed("embd-normalize", options.get("embd-normalize", EMBD_NORMALIZE), int),
            suffix_first=_typed("spm-infill", options.get("spm-infill", False), bool),
        )
    except (TypeError, ValueError) as error:
        raise LlamadError(f"cannot start: {error}", kind="bad-start") from error


def context_size(trained: int) -> int:
    """The context of a model that was trained with `trained` tokens (0: unknown), where nobody said what it shall be."""
    return min(trained, N_CTX_DEFAULT_MAX) if trained else N_CTX_DEFAULT_MAX


def _canonical(options: Mapping[str, Any]) -> dict[str, Any]:
    named = {_OTHER_NAMES.get(name, name): value for name, value in options.items() if value is not None}
    return {
        name.removeprefix("no-"): (not value if name.startswith("no-") else value)
        for name, value in named.items()
    }


def _with_reranking(options: dict[str, Any]) -> dict[str, Any]:
    """To rank is to embed with a pooling of its own; llama-server takes the one for the other, too."""
    return options | {"embeddings": True, "pooling": "rank"} if options.get("reranking") else options


def _fields(kind: type, names: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the dataclass `kind`, each as the type that its default has."""
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    return {
        field: _typed(name, options[name], type(defaults[field]))
        for name, field in names.items()
        if name in options
    }


def _typed(name: str, value: Any, wanted: type) -> Any:
    """A float may be written as a whole number; nothing else is converted."""
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not wanted:
        raise TypeError(f"option {name} is {value!r}, expected {wanted.__name__}")
    return value


def _defaults(options: Mapping[str, Any]) -> Generation:
    sampling = SamplingParams(
        **_fields(SamplingParams, _SAMPLING_OPTIONS, options),
        **_samplers(options),
        logit_bias=_logit_bias(options.get("logit-bias") or ()),
    )
    return Generation(
        max_tokens=_typed("n-predict", options.get("n-predict", -1), int),
        cache_prompt=_typed("cache-prompt", options.get("cache-prompt", True), bool),
        n_keep=_typed("keep", options.get("keep", 0), int),
        sampling=sampling,
        speculation=parse_speculation(options).types,
    )


def _keeping(options: Mapping[str, Any]) -> Keeping:
    fields = _fields(Keeping, _KEEPING_OPTIONS, options)
    mib = _typed("cache-ram", options.get("cache-ram", CACHE_RAM_MIB), int)
    return Keeping(ram_bytes=mib << 20, **{"similarity": SIMILARITY, **fields})


def _devices(body: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """As the document itself says (the supervisor has chosen), else as the options do."""
    if body.get("devices"):
        names, shares = body["devices"], body.get("tensor_split") or ()
    else:
        names = _parts(options.get("device") or "", ",")
        shares = [float(share) for share in _parts(options.get("tensor-split") or "", ",/")]
    return {
        "devices": tuple(_typed("device", name, str) for name in names),
        "tensor_split": tuple(_typed("tensor-split", share, float) for share in shares),
    }


def _adapters(options: Mapping[str, Any]) -> tuple[AdapterFile, ...]:
    plain = [(path, 1.0) for path in options.get("lora") or ()]
    scaled = [split_scale(item) for item in options.get("lora-scaled") or ()]
    unused = _typed("lora-init-without-apply", options.get("lora-init-without-apply", False), bool)
    return tuple(AdapterFile(str(path), 0.0 if unused else scale) for path, scale in plain + scaled)


def _parts(text: str, separators: str) -> list[str]:
    return [part.strip() for part in re.split(f"[{separators}]", text) if part.strip()]


def _samplers(options: Mapping[str, Any]) -> dict[str, Any]:
    """What is said in texts of their own: the order of samplers, and DRY's breakers (JSON, `"none"` for none)."""
    found: dict[str, Any] = {}
    if options.get("sampler-seq"):
        found["samplers"] = sampler_names(options["sampler-seq"])
    if options.get("samplers"):
        found["samplers"] = sampler_names(options["samplers"].split(";"))
    if options.get("dry-sequence-breaker"):
        value = json.loads(options["dry-sequence-breaker"])
        items = value if isinstance(value, list) else [] if value == "none" else [_unescaped(str(value))]
        if not all(is_breaker(item) for item in items):
            raise ValueError("option dry-sequence-breaker has something else than short texts")
        found["dry_sequence_breakers"] = tuple(items)
    return found


def _unescaped(text: str) -> str:
    """llama-server reads escapes in this option; one line of INI has no other way to say a new line."""
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r")


def _logit_bias(items: list[str] | tuple[str, ...]) -> tuple[tuple[int, float], ...]:
    """`15043+1`, `15043-inf`."""
    biases = []
    for item in items:
        match = _LOGIT_BIAS.fullmatch(item)
        if not match:
            raise ValueError(f"option logit-bias has {item!r}, expected a token id and its bias")
        biases.append((int(match[1]), float(match[2])))
    return tuple(biases)
