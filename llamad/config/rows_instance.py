"""Rows of the option table: how an instance loads and runs its model. llama-server's names, meanings and defaults."""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.values import Choice, Duration, Flag, Matching, Number, Whole

_CONTEXT = "Instances: context and slots"
_COMPUTE = "Instances: threads, devices, weights"
_FIT = "Instances: fitting into memory, idleness"
_CHAT = "Instances: chat and infill"
_ALL = Scope.INSTANCE

_KV_TYPES = Choice(("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"))
_ON_OFF_AUTO = Choice(
    ("on", "off", "auto"),
    same={
        "true": "on",
        "1": "on",
        "enabled": "on",
        "false": "off",
        "0": "off",
        "disabled": "off",
        "-1": "auto",
    },
)
_ON_OFF = Choice(("on", "off"), same={"true": "on", "1": "on", "false": "off", "0": "off"})
_IDLE = Duration(words={"-1": 0.0, "off": 0.0})
_SLOTS_AUTO = 4

ROWS: tuple[Option, ...] = (
    Option(
        "ctx-size",
        Whole(),
        "context in tokens, 0 for what the model was trained with",
        _ALL,
        _CONTEXT,
        default=0,
        also=("c",),
    ),
    Option(
        "parallel",
        Whole(1, 256, words={"auto": _SLOTS_AUTO, "-1": _SLOTS_AUTO}),
        "slots: requests that one instance serves at once",
        _ALL,
        _CONTEXT,
        default=_SLOTS_AUTO,
        also=("np",),
        env=("LLAMA_ARG_N_PARALLEL",),
    ),
    Option(
        "batch-size",
        Whole(1, 2**20),
        "most tokens in one decode call",
        _ALL,
        _CONTEXT,
        default=2048,
        also=("b",),
        env=("LLAMA_ARG_BATCH",),
    ),
    Option(
        "ubatch-size",
        Whole(1, 2**20),
        "most tokens that the device computes in one go",
        _ALL,
        _CONTEXT,
        default=512,
        also=("ub",),
        env=("LLAMA_ARG_UBATCH",),
    ),
    Option(
        "prefill-budget",
        Number(0, 1),
        "part of a step's time that prompts may take while answers are streamed, 1 for no bound",
        _ALL,
        _CONTEXT,
        default=0.8,
    ),
    Option(
        "kv-unified",
        Flag(),
        "one KV buffer shared by all slots, instead of equal parts",
        _ALL,
        _CONTEXT,
        default=True,
        also=("kvu",),
        negatives=("no-kv-unified", "no-kvu"),
    ),
    Option("cache-type-k", _KV_TYPES, "KV type of keys", _ALL, _CONTEXT, default="f16", also=("ctk",)),
    Option("cache-type-v", _KV_TYPES, "KV type of values", _ALL, _CONTEXT, default="f16", also=("ctv",)),
    Option(
        "swa-full",
        Flag(),
        "full-size cache for sliding-window models",
        _ALL,
        _CONTEXT,
        default=False,
        negatives=("no-swa-full",),
    ),
    Option(
        "cache-prompt",
        Flag(),
        "reuse the part of a prompt that a slot still holds",
        _ALL,
        _CONTEXT,
        default=True,
        negatives=("no-cache-prompt",),
    ),
    Option(
        "fit",
        _ON_OFF,
        "choose what is not set (context, then layers on GPUs) so that it fits into memory",
        _ALL,
        _FIT,
        default="on",
    ),
    Option(
        "fit-target",
        Matching(
            r"\d{1,9}([,/]\d{1,9}){0,63}", "a number of MiB, or several with commas between", hint="MIB,…"
        ),
        "MiB to leave free on each GPU when fitting; one for all or one each",
        _ALL,
        _FIT,
        default_text="1024, or nothing where memory is booked",
        also=("fitt",),
    ),
    Option(
        "fit-ctx",
        Whole(1),
        "smallest context that fitting may choose",
        _ALL,
        _FIT,
        default=4096,
        also=("fitc",),
    ),
    Option(
        "sleep-idle-seconds",
        _IDLE,
        "release weights and caches when not used for this long; the process stays",
        _ALL,
        _FIT,
        default=0.0,
        default_text="-1 (never)",
    ),
    Option(
        "unload-idle-seconds",
        _IDLE,
        "end the process when it was not used for this long",
        _ALL,
        _FIT,
        default=0.0,
        default_text="-1 (never)",
    ),
    Option(
        "spm-infill",
        Flag(),
        "fill in with the suffix before the prefix, as some models were trained",
        _ALL,
        _CHAT,
        default=False,
    ),
    Option(
        "sse-ping-interval",
        Whole(-1, 2**31 - 1),
        "seconds of silence after which a stream sends a comment, -1 for never; a request may say otherwise",
        _ALL,
        _CHAT,
        default=30,
    ),
    Option(
        "threads",
        Whole(-1, 1024),
        "threads for generating, -1 for the cores it may run on",
        _ALL,
        _COMPUTE,
        default=-1,
        also=("t",),
    ),
    Option(
        "threads-batch",
        Whole(-1, 1024),
        "threads for prompts, -1 for the same",
        _ALL,
        _COMPUTE,
        default=-1,
        also=("tb",),
    ),
    Option(
        "n-gpu-layers",
        Whole(-1, 10_000, words={"all": -1, "auto": -1}),
        "layers on the GPU, or all",
        _ALL,
        _COMPUTE,
        default=-1,
        default_text="all",
        also=("ngl", "gpu-layers"),
    ),
    Option(
        "device",
        Matching(r"[^\s,]+(,[^\s,]+){0,15}", "a name, or several with commas between", hint="DEV1,DEV2,…"),
        "GPUs to use by name, as CUDA0, or none for no GPU",
        _ALL,
        _COMPUTE,
        default_text="one that has room, else all",
        also=("dev",),
    ),
    Option(
        "split-mode",
        Choice(("none", "layer", "row", "tensor")),
        "over several GPUs: split by layer, or none, for the one that main-gpu says",
        _ALL,
        _COMPUTE,
        default="layer",
        also=("sm",),
        honoured=("none", "layer"),
    ),
    Option(
        "tensor-split",
        Matching(
            r"\d{1,6}(\.\d{1,6})?([,/]\d{1,6}(\.\d{1,6})?){0,15}",
            "a share, or several with commas between",
            hint="N0,N1,…",
        ),
        "share of the layers for each GPU",
        _ALL,
        _COMPUTE,
        default_text="by their memory",
        also=("ts",),
    ),
    Option(
        "main-gpu",
        Whole(0, 255),
        "index of the one GPU to use with split-mode none",
        _ALL,
        _COMPUTE,
        default=0,
        also=("mg",),
    ),
    Option(
        "flash-attn", _ON_OFF_AUTO, "flash attention", _ALL, _COMPUTE, default="auto", also=("fa",), bare="on"
    ),
    Option(
        "mmap",
        Flag(),
        "map the file instead of reading it",
        _ALL,
        _COMPUTE,
        default=True,
        negatives=("no-mmap",),
    ),
    Option("mlock", Flag(), "keep the weights from being swapped out", _ALL, _COMPUTE, default=False),
)
