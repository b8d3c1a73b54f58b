"""Asks a llama-server and writes down what its answers look like, for the tests that have none.

    python -m tests.likeness.record [--llama-server PATH]

`scripts/bench/versus.py --help` says how to get one.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.likeness.asking import ask_all
from tests.likeness.cases import GROUPS
from tests.likeness.peer import peer
from tests.model.generated import generated

RECORDED = Path(__file__).with_name("recorded.json")


def main() -> None:
    llama_server, server = peer(__doc__)
    found = {}
    for model, group in GROUPS.items():
        with llama_server.running(server, generated(model), group.options | {"alias": model}, {}) as door:
            found[model] = ask_all(f"http://{door.host}:{door.port}", group.cases, {})
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{sum(map(len, found.values()))} answers in {RECORDED}")


if __name__ == "__main__":
    main()
