"""Rows of the option table: what only models.ini may say of a model."""

from __future__ import annotations

from llamad.config.option import Option, Scope
from llamad.config.rules import FIELD
from llamad.config.values import Choice, Duration, Flag, Listing, Text, Whole

_GROUP = "Presets only"
_MODEL = Scope.MODEL
_FILE = Text("FILE", may_be_empty=False, path=True)

ROWS: tuple[Option, ...] = (
    Option(
        "model",
        _FILE,
        "the model's GGUF file, the first one of a sharded model",
        _MODEL,
        _GROUP,
        also=("m",),
        single=True,
    ),
    Option(
        "mmproj",
        _FILE,
        "its multimodal projector; shown, but not used yet: the model serves text only",
        _MODEL,
        _GROUP,
        also=("mm",),
        single=True,
    ),
    Option(
        "mmproj-auto",
        Flag(),
        "take the projector that lies beside the model",
        _MODEL,
        _GROUP,
        default=True,
        negatives=("no-mmproj", "no-mmproj-auto"),
    ),
    Option(
        "alias",
        Listing(),
        "other names of the model, with commas between",
        _MODEL,
        _GROUP,
        also=("a", "aliases"),
        single=True,
    ),
    Option(
        "variant-of",
        Text("MODEL", may_be_empty=False),
        "the section is another name of MODEL, with other request rules and no process of its own",
        _MODEL,
        _GROUP,
        single=True,
    ),
    Option(
        "remove",
        Listing("FIELD,…", FIELD, "a parameter's name"),
        "parameters taken out of each request; default.FIELD and force.FIELD = JSON set them",
        _MODEL,
        _GROUP,
    ),
    Option("tags", Listing(), "words shown with the model, with commas between", _MODEL, _GROUP),
    Option(
        "load-on-startup", Flag(), "load it when llamad starts (not on reload)", _MODEL, _GROUP, default=False
    ),
    Option(
        "stop-timeout",
        Duration(),
        "seconds between the polite stop and the hard one",
        _MODEL,
        _GROUP,
        default=10.0,
    ),
    Option("pinned", Flag(), "never unload it to make room", _MODEL, _GROUP, default=False),
    Option(
        "priority",
        Whole(-100, 100),
        "those with a higher one get room first; each step is worth 30 seconds of waiting",
        _MODEL,
        _GROUP,
        default=0,
    ),
    Option(
        "concurrency-limit",
        Whole(0, 100_000),
        "requests that it may have at the same time, 0 for one more than it has slots",
        _MODEL,
        _GROUP,
        default=0,
    ),
    Option("unlisted", Flag(), "serve it, but leave it out of lists", _MODEL, _GROUP, default=False),
    Option(
        "dedup-cache-models",
        Flag(),
        "hide the cached model that a preset refers to",
        _MODEL,
        _GROUP,
        default=False,
    ),
    Option(
        "engine",
        Choice(("llamad", "llama-server", "command")),
        "what runs the model",
        _MODEL,
        _GROUP,
        default="llamad",
        honoured=("llamad",),
    ),
)
