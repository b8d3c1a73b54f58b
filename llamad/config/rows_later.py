"""Rows of the option table: what llama-server has and llamad cannot do yet.

They are here so that a preset which carries one gets told so, and so that a value which asks for what llamad does
anyway is taken. A row moves to its own file when llamad learns to follow it. Spellings: the first one is canonical.
"""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.settings import OptionValue
from llamad.config.values import Choice, Flag, Kind, Number, Text, Whole

_GROUP = "Not yet"
_FLAG = Flag()
_TEXT = Text()
_WHOLE = Whole(-(2**31))
_NUMBER = Number()


def _later(
    kind: Kind,
    spellings: str,
    *honoured: OptionValue,
    no: str = "",
    env: str = "",
    scope: Scope = Scope.INSTANCE,
) -> Option:
    name, *also = spellings.split()
    return Option(
        name,
        kind,
        "",
        scope,
        _GROUP,
        also=tuple(also),
        negatives=tuple(no.split()),
        env=tuple(env.split()),
        honoured=honoured,
    )


# Never taken and ignored: an open port where somebody set a key or a certificate would be worse than no port.
_DAEMON = tuple(
    _later(kind, spellings, *honoured, no=no, env=env, scope=Scope.DAEMON)
    for kind, spellings, honoured, no, env in (
        (_TEXT, "api-prefix", (), "", ""),
        (_TEXT, "path", (), "", "LLAMA_ARG_STATIC_PATH"),
        (_FLAG, "reuse-port", (False,), "", ""),
        (_WHOLE, "threads-http", (-1,), "", ""),
        (_FLAG, "ui webui", (False,), "no-ui no-webui", ""),
        (_TEXT, "ui-config webui-config", (), "", ""),
        (_TEXT, "ui-config-file webui-config-file", (), "", ""),
        (_FLAG, "ui-mcp-proxy webui-mcp-proxy", (False,), "no-ui-mcp-proxy no-webui-mcp-proxy", ""),
        (_TEXT, "tools", (), "", ""),
        (_TEXT, "tools-runtime", (), "", ""),
        (_TEXT, "mcp-servers-config", (), "", ""),
        (_TEXT, "mcp-servers-json", (), "", ""),
        (_FLAG, "agent ag", (False,), "no-agent no-ag", ""),
        (_FLAG, "log-disable", (), "", ""),
        (_TEXT, "log-file", (), "", ""),
        (_FLAG, "log-jsonl", (False,), "no-log-jsonl", ""),
        (_TEXT, "log-colors", (), "", ""),
        (_FLAG, "log-prefix", (), "no-log-prefix", ""),
        (_FLAG, "log-timestamps", (), "no-log-timestamps", ""),
        (_FLAG, "verbose v log-verbose", (), "", ""),
        (_WHOLE, "verbosity lv log-verbosity", (), "", "LLAMA_ARG_LOG_VERBOSITY"),
        (_TEXT, "log-prompts-dir", (), "", ""),
    )
)

_SOURCES = (
    _later(_TEXT, "hf-repo hf hfr"),
    _later(_TEXT, "hf-file hff"),
    _later(_TEXT, "hf-token hft HF_TOKEN"),
    _later(_TEXT, "model-url mu"),
    _later(_TEXT, "mmproj-url mmu"),
    _later(_TEXT, "docker-repo dr"),
    _later(_FLAG, "offline", True),
    _later(_FLAG, "mmproj-offload", no="no-mmproj-offload"),
    _later(_TEXT, "mmproj-device mmdev MTMD_BACKEND_DEVICE"),
    _later(_WHOLE, "image-min-tokens"),
    _later(_WHOLE, "image-max-tokens"),
    _later(_WHOLE, "mtmd-batch-max-tokens"),
    _later(_TEXT, "media-path"),
    _later(_TEXT, "control-vector"),
    _later(_TEXT, "control-vector-scaled"),
    _later(_TEXT, "control-vector-layer-range"),
    _later(_TEXT, "override-kv"),
    _later(_FLAG, "check-tensors", False),
)

_COMPUTE = (
    _later(_TEXT, "override-tensor ot"),
    _later(_FLAG, "cpu-moe cmoe", False),
    _later(_WHOLE, "n-cpu-moe ncmoe", 0),
    _later(_WHOLE, "moe-cache-mib", 0),
    _later(_WHOLE, "n-cpu-ffn ncffn", 0),
    _later(_FLAG, "kv-offload kvo", True, no="no-kv-offload nkvo"),
    _later(_FLAG, "op-offload", True, no="no-op-offload"),
    _later(_FLAG, "repack", True, no="no-repack nr"),
    _later(_FLAG, "no-host", False),
    _later(Choice(("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")), "load-mode lm", "auto", "mmap"),
    _later(_TEXT, "lazy-mode lzm"),
    _later(_FLAG, "direct-io dio", False, no="no-direct-io ndio"),
    _later(_TEXT, "numa"),
    _later(_TEXT, "rpc"),
    _later(_TEXT, "cpu-mask C"),
    _later(_TEXT, "cpu-range Cr"),
    _later(_FLAG, "cpu-strict", False),
    _later(_TEXT, "cpu-mask-batch Cb"),
    _later(_TEXT, "cpu-range-batch Crb"),
    _later(_FLAG, "cpu-strict-batch", False),
    _later(_WHOLE, "prio", 0),
    _later(_WHOLE, "prio-batch", 0),
    _later(_WHOLE, "poll"),
    _later(_WHOLE, "poll-batch"),
    _later(_FLAG, "perf", False, no="no-perf"),
    _later(_FLAG, "warmup", False, no="no-warmup"),
    _later(_TEXT, "rope-scaling", env="LLAMA_ARG_ROPE_SCALING_TYPE"),
    _later(_NUMBER, "rope-scale"),
    _later(_NUMBER, "rope-freq-base"),
    _later(_NUMBER, "rope-freq-scale"),
    _later(_WHOLE, "yarn-orig-ctx", 0),
    _later(_NUMBER, "yarn-ext-factor", -1.0),
    _later(_NUMBER, "yarn-attn-factor", -1.0),
    _later(_NUMBER, "yarn-beta-slow", -1.0),
    _later(_NUMBER, "yarn-beta-fast", -1.0),
    _later(_NUMBER, "defrag-thold dt"),
)

_SLOTS = (
    _later(_WHOLE, "kv-unified-per-slot"),
    _later(_FLAG, "cont-batching cb", True, no="no-cont-batching nocb"),
    _later(_TEXT, "lookup-cache-static lcs"),
    _later(_TEXT, "lookup-cache-dynamic lcd"),
)

_CHAT = (
    _later(_FLAG, "jinja", True, no="no-jinja"),
    _later(_TEXT, "reverse-prompt r"),
    _later(_FLAG, "special sp", False),
    _later(_FLAG, "escape e", no="no-escape"),
)

_SAMPLING = (_later(_FLAG, "backend-sampling bs", False),)

_DRAFT = (
    _later(_TEXT, "spec-draft-hf hfd hfrd hf-repo-draft", env="LLAMA_ARG_SPEC_DRAFT_HF_REPO"),
    _later(_TEXT, "spec-draft-override-tensor otd override-tensor-draft"),
    _later(_FLAG, "spec-draft-cpu-moe cmoed cpu-moe-draft", False),
    _later(_WHOLE, "spec-draft-n-cpu-moe spec-draft-ncmoe ncmoed n-cpu-moe-draft", 0),
    _later(_NUMBER, "spec-draft-p-split draft-p-split", 0.1),
    _later(_FLAG, "spec-draft-backend-sampling", False, no="no-spec-draft-backend-sampling"),
)

ROWS: tuple[Option, ...] = (*_DAEMON, *_SOURCES, *_COMPUTE, *_SLOTS, *_CHAT, *_SAMPLING, *_DRAFT)
