"""The llama-server whose answers are recorded."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def peer(description: str | None) -> tuple[Any, Path]:
    """The benchmarks' module that runs one, and the one that the command line names. SystemExit where there is none."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "scripts/bench"))
    import llama_server

    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    llama_server.add_option(parser)
    return llama_server, llama_server.find_or_exit(parser.parse_args().llama_server)
