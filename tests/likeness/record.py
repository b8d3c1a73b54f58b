"""Asks a llama-server and writes down what its answers look like, for the tests that have none.

    python -m tests.likeness.record [--llama-server PATH]

`scripts/bench/versus.py --help` says how to get one.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.likeness.asking import ask_all
from tests.likeness.cases import CASES
from tests.model.generated import generated

RECORDED = Path(__file__).with_name("recorded.json")
OPTIONS = {"ctx-size": 1024, "parallel": 2, "kv-unified": True}
MORE = {"metrics": True, "props": True, "slots": True, "alias": "tiny"}


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "scripts/bench"))
    import llama_server

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    llama_server.add_option(parser)
    arguments = parser.parse_args()
    server = llama_server.find_or_exit(arguments.llama_server)
    with llama_server.running(server, generated("tiny"), OPTIONS | MORE, {}) as door:
        found = ask_all(f"http://{door.host}:{door.port}", CASES, {})
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{len(found)} answers in {RECORDED}")


if __name__ == "__main__":
    main()
