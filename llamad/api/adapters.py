"""LoRA adapters in JSON: llama.cpp's `[{"id", "scale"}]`, of a request and of `/lora-adapters`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llamad.api.fields import Fields, wrong_field
from llamad.engine.vocabulary import AdapterFacts, Adapters

ADAPTERS_MAX = 64
SCALE_MAX = 1e6


def parse_adapters(value: Any, where: str) -> Adapters:
    """The set that a list asks for: adapters that it does not name are off. Raises RequestError that names the field.

    Whether there are such adapters is the engine's to say.
    """
    if not isinstance(value, list) or len(value) > ADAPTERS_MAX:
        raise wrong_field(where, f"an array of at most {ADAPTERS_MAX} adapters", value)
    scales: dict[int, float] = {}
    for index, item in enumerate(value):
        place = f"{where}[{index}]"
        if not isinstance(item, dict):
            raise wrong_field(place, 'an object like {"id": 0, "scale": 1.0}', item)
        fields = Fields(item, place)
        if fields.raw("id") is None:
            raise fields.wrong("id", "the number of an adapter", None)
        id = fields.integer("id", 0, 0, (1 << 31) - 1)
        if id in scales:
            raise wrong_field(place, f"each adapter once, {id} is there twice", item)
        # What is not said is 0, as in llama-server.
        scales[id] = fields.number("scale", 0.0, -SCALE_MAX, SCALE_MAX)
    return tuple(sorted((id, scale) for id, scale in scales.items() if scale))


def adapters_document(adapters: Adapters | None) -> list[dict[str, Any]]:
    """A set as requests say it."""
    return [{"id": id, "scale": scale} for id, scale in adapters or ()]


def adapter_list(facts: Sequence[AdapterFacts], in_force: Adapters) -> list[dict[str, Any]]:
    """`GET /lora-adapters`: those that are loaded, and the scales that requests get that say nothing."""
    scales = dict(in_force)
    return [
        {
            "id": id,
            "path": adapter.path,
            "scale": scales.get(id, 0.0),
            "task_name": adapter.task_name,
            "prompt_prefix": adapter.prompt_prefix,
        }
        for id, adapter in enumerate(facts)
    ]
