"""Rows of the option table: what requests get that do not say how to sample. llama-server's names and defaults."""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.values import Flag, Json, Listing, Matching, Number, Schema, Text, Whole

_SAMPLING = "Instances: sampling defaults (a request may say otherwise)"
_RULES = "Instances: what answers conform to (a request may say otherwise)"
_ALL = Scope.INSTANCE

_RANDOM_SEED = 0xFFFFFFFF
_MUCH = 1e6
_SAMPLER = "|".join(
    (
        *("penalties", "dry", "xtc", "temp(?:erature)?", "infill", "nucleus"),
        *(
            r"top[-_]?k",
            r"top[-_]?p",
            r"top[-_]?n[-_]?sigma",
            r"min[-_]?p",
            r"typ(?:ical)?(?:[-_]?p)?",
            r"adaptive[-_]?p",
        ),
    )
)

ROWS: tuple[Option, ...] = (
    Option(
        "seed",
        Whole(0, _RANDOM_SEED, words={"-1": _RANDOM_SEED}),
        "random seed, -1 for a new one each time",
        _ALL,
        _SAMPLING,
        default_text="-1",
        also=("s",),
    ),
    Option("temperature", Number(0.0, 1000.0), "0 is greedy", _ALL, _SAMPLING, default=0.8, also=("temp",)),
    Option("top-k", Whole(-1), "0 is off", _ALL, _SAMPLING, default=40),
    Option("top-p", Number(0.0, 1.0), "1 is off", _ALL, _SAMPLING, default=0.95),
    Option("min-p", Number(0.0, 1.0), "0 is off", _ALL, _SAMPLING, default=0.05),
    Option("typical-p", Number(0.0, 1.0), "1 is off", _ALL, _SAMPLING, default=1.0, also=("typical",)),
    Option(
        "repeat-last-n",
        Whole(-1),
        "tokens that penalties look at, 0 is off, -1 all of the context",
        _ALL,
        _SAMPLING,
        default=64,
    ),
    Option("repeat-penalty", Number(0.0, 100.0), "1 is off", _ALL, _SAMPLING, default=1.0),
    Option("presence-penalty", Number(-100.0, 100.0), "0 is off", _ALL, _SAMPLING, default=0.0),
    Option("frequency-penalty", Number(-100.0, 100.0), "0 is off", _ALL, _SAMPLING, default=0.0),
    Option(
        "logit-bias",
        Listing(
            "ID±BIAS,…",
            item=r"[0-9]{1,9}[+-](?:[0-9]{1,6}(?:\.[0-9]{1,6})?|inf)",
            what="a token id and its bias, for example 15043+1 or 15043-inf",
        ),
        "added to the logits of these tokens",
        _ALL,
        _SAMPLING,
        default_text="none",
        also=("l",),
    ),
    Option("ignore-eos", Flag(), "go on after the end of generation", _ALL, _SAMPLING, default=False),
    Option(
        "n-predict",
        Whole(-1),
        "tokens to generate, -1 until the context is full",
        _ALL,
        _SAMPLING,
        default=-1,
        also=("n", "predict"),
    ),
    Option(
        "samplers",
        Matching(
            rf"(?i:(?:{_SAMPLER})(?:;(?:{_SAMPLER}))*)?",
            "a list of samplers with semicolons between, for example top_k;min_p;temperature",
            hint="A;B",
        ),
        "the samplers in their order",
        _ALL,
        _SAMPLING,
        default_text="llama.cpp's order",
    ),
    Option(
        "sampler-seq",
        Matching("[dkypsmtxiea]*", "a text of samplers' letters, for example kmt", hint="LETTERS"),
        "the same by letters",
        _ALL,
        _SAMPLING,
        default="edskypmxt",
        also=("sampling-seq",),
    ),
    Option(
        "top-n-sigma",
        Number(-_MUCH, _MUCH),
        "-1 is off",
        _ALL,
        _SAMPLING,
        default=-1.0,
        also=("top-nsigma",),
    ),
    Option("xtc-probability", Number(0.0, 1.0), "0 is off", _ALL, _SAMPLING, default=0.0),
    Option("xtc-threshold", Number(0.0, 1.0), "above 0.5 is off", _ALL, _SAMPLING, default=0.1),
    Option("dry-multiplier", Number(0.0, _MUCH), "0 is off", _ALL, _SAMPLING, default=0.0),
    Option("dry-base", Number(1.0, _MUCH), "base of DRY's penalty", _ALL, _SAMPLING, default=1.75),
    Option(
        "dry-allowed-length",
        Whole(),
        "tokens that may be repeated without penalty",
        _ALL,
        _SAMPLING,
        default=2,
    ),
    Option(
        "dry-penalty-last-n",
        Whole(-1),
        "tokens that DRY looks at, 0 is off, -1 all of the context",
        _ALL,
        _SAMPLING,
        default=64,
    ),
    Option(
        "dry-sequence-breaker",
        Json(hint="TEXT|[…]"),
        "what no repetition goes across: one text, a JSON list of them, or none",
        _ALL,
        _SAMPLING,
        default_text=r'["\n", ":", "\"", "*"]',
    ),
    Option("adaptive-target", Number(-_MUCH, 1.0), "-1 is off", _ALL, _SAMPLING, default=-1.0),
    Option(
        "adaptive-decay", Number(0.0, 0.99), "how long adaptive-p remembers", _ALL, _SAMPLING, default=0.9
    ),
    Option("dynatemp-range", Number(0.0, 1000.0), "0 is off", _ALL, _SAMPLING, default=0.0),
    Option("dynatemp-exp", Number(0.0, _MUCH), "exponent of dynatemp", _ALL, _SAMPLING, default=1.0),
    Option("mirostat", Whole(0, 2), "0 is off, 1 or 2 in place of samplers", _ALL, _SAMPLING, default=0),
    Option("mirostat-lr", Number(0.0, _MUCH), "mirostat's learning rate, eta", _ALL, _SAMPLING, default=0.1),
    Option(
        "mirostat-ent", Number(0.0, _MUCH), "mirostat's target entropy, tau", _ALL, _SAMPLING, default=5.0
    ),
    Option("grammar", Text("GBNF"), "grammar of all answers", _ALL, _RULES, default_text="none"),
    Option(
        "grammar-file",
        Text("FILE", may_be_empty=False, path=True),
        "file with the grammar",
        _ALL,
        _RULES,
        default_text="none",
    ),
    Option("json-schema", Schema(), "schema of all answers", _ALL, _RULES, default_text="none", also=("j",)),
    Option(
        "json-schema-file",
        Text("FILE", may_be_empty=False, path=True),
        "file with the schema",
        _ALL,
        _RULES,
        default_text="none",
        also=("jf",),
    ),
)
