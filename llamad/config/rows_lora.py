"""Rows of the option table: LoRA adapters. llama-server's names and meanings."""

from __future__ import annotations

from llamad.config.file_list import FileList
from llamad.config.option import Option, Scope
from llamad.config.values import Flag

_LORA = "Instances: LoRA adapters"
_ALL = Scope.INSTANCE

ROWS: tuple[Option, ...] = (
    Option(
        "lora",
        FileList(),
        "adapters to load, in the order of their ids, with a scale of 1; a request may say otherwise",
        _ALL,
        _LORA,
        default_text="none",
    ),
    Option(
        "lora-scaled",
        FileList("FILE:SCALE,…", scaled=True),
        "more adapters, each with its scale",
        _ALL,
        _LORA,
        default_text="none",
    ),
    Option(
        "lora-init-without-apply",
        Flag(),
        "begin with all scales at 0; a request or POST /lora-adapters puts adapters in force",
        _ALL,
        _LORA,
        default=False,
    ),
)
