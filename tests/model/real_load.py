"""Loads a model as an instance does and prints what it takes: `python -m tests.model.real_load FIELDS-OF-ENGINESETTINGS`."""

from __future__ import annotations

import json
import sys

import llamad.child.instance  # noqa: F401  what an instance imports is part of what it takes
from llamad.engine import breakdown, loading, memory
from llamad.engine.drafting import DraftModelSettings, SpeculationSettings
from llamad.engine.vocabulary import AdapterFile, EngineSettings


def main(fields: str) -> None:
    document = json.loads(fields)
    adapters = tuple(AdapterFile(*adapter) for adapter in document.pop("adapters", ()))
    draft = DraftModelSettings(document.pop("draft", ""))
    speculation = SpeculationSettings(("draft-simple",) if draft.path else (), draft=draft)
    backend = loading.load(EngineSettings(**document, adapters=adapters, speculation=speculation))
    print(json.dumps(breakdown.to_document(memory.effective_bytes(backend))))
    backend.close()


if __name__ == "__main__":
    main(sys.argv[1])
