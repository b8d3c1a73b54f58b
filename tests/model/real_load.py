"""Loads a model as an instance does and prints what it takes: `python -m tests.model.real_load FIELDS-OF-ENGINESETTINGS`."""

from __future__ import annotations

import json
import sys

import llamad.child.instance  # noqa: F401  what an instance imports is part of what it takes
from llamad.engine import breakdown, llama, memory
from llamad.engine.vocabulary import AdapterFile, EngineSettings


def main(fields: str) -> None:
    document = json.loads(fields)
    adapters = tuple(AdapterFile(*adapter) for adapter in document.pop("adapters", ()))
    backend = llama.load(EngineSettings(**document, adapters=adapters))
    print(json.dumps(breakdown.to_document(memory.effective_bytes(backend))))
    backend.close()


if __name__ == "__main__":
    main(sys.argv[1])
