"""Under which name the measured memory of a model is kept: the same name exactly as long as the numbers hold. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from llamad.config.settings import OptionValue

# Whatever is not listed may change what a model takes, so an option that is new here costs a measurement, not a mistake.
# `fit-target` limits what is chosen between the measured ends, not the ends.
_WITHOUT_EFFECT = frozenset(
    {
        "adaptive-decay",
        "adaptive-target",
        "alias",
        "cache-idle-slots",
        "cache-prompt",
        "cache-reuse",
        "chat-template",
        "chat-template-file",
        "chat-template-kwargs",
        "checkpoint-min-step",
        "concurrency-limit",
        "context-shift",
        "ctx-checkpoints",
        "dry-allowed-length",
        "dry-base",
        "dry-multiplier",
        "dry-penalty-last-n",
        "dry-sequence-breaker",
        "dynatemp-exp",
        "dynatemp-range",
        "embd-normalize",
        "fit-target",
        "frequency-penalty",
        "grammar",
        "grammar-file",
        "ignore-eos",
        "jinja",
        "json-schema",
        "json-schema-file",
        "keep",
        "load-on-startup",
        "logit-bias",
        "metrics",
        "min-p",
        "mirostat",
        "mirostat-ent",
        "mirostat-lr",
        "model",
        "n-predict",
        "pinned",
        "prefill-assistant",
        "prefill-budget",
        "presence-penalty",
        "priority",
        "props",
        "reasoning",
        "reasoning-budget",
        "reasoning-budget-message",
        "reasoning-effort",
        "reasoning-format",
        "reasoning-preserve",
        "repeat-last-n",
        "repeat-penalty",
        "sampler-seq",
        "samplers",
        "seed",
        "skip-chat-parsing",
        "sleep-idle-seconds",
        "slots",
        "special",
        "sse-ping-interval",
        "stop-timeout",
        "tags",
        "temperature",
        "top-k",
        "top-n-sigma",
        "top-p",
        "typical-p",
        "unlisted",
        "unload-idle-seconds",
        "xtc-probability",
        "xtc-threshold",
    }
)


def measure_key(
    files: Iterable[str],
    options: Mapping[str, OptionValue],
    environment: Mapping[str, str],
    devices: Iterable[tuple[str, int]],
    build: str,
) -> str:
    """32 hexadecimal digits, the same in every process.

    `files`: `sources.identity` of each file that is loaded, shards in their order. `options`: by long name, as somebody
    set them. `environment`: variables given to this model. `devices`: name and total bytes of each that llama.cpp sees.
    `build`: versions of what does the measuring.
    """
    what = {
        "files": list(files),
        "options": {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT},
        "environment": dict(environment),
        "devices": sorted(devices),
        "build": build,
    }
    text = json.dumps(what, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
