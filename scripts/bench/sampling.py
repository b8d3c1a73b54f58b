"""What choosing a token costs, in milliseconds: plain, with likelihoods, with other samplers, under a schema and a grammar.

    .venv/bin/python scripts/bench/sampling.py [MODEL.gguf] [--tokens N]

The model really generates, one sequence at a time; only the choice is timed, not the evaluation. Beside a constraint's
mean stands how much of it llama.cpp's own grammar would take in llama-server's way (the chosen token is checked first,
all are only if it is refused), with the schema's grammar written by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "40000")
os.environ.setdefault("OMP_WAIT_POLICY", "active")

import numpy as np
from llama_cpp import llama_cpp as lib

from llamad.api.schema import schema_text
from llamad.engine import llama
from llamad.engine.backend import Entry
from llamad.engine.sampling import Constraint, Sampler
from llamad.engine.vocabulary import EngineSettings, Rules, SamplingParams, Wanted
from llamad.engine.workshop import Rulebook

DEFAULT_MODEL = Path.home() / ".cache/llamad/models/SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "Three people, as JSON:\n"
SCHEMA = {
    "type": "array",
    "minItems": 3,
    "maxItems": 3,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 30},
            "age": {"type": "integer", "minimum": 1, "maximum": 99},
            "likes": {"type": "array", "items": {"enum": ["music", "sport", "books"]}, "maxItems": 3},
        },
        "required": ["name", "age", "likes"],
    },
}
GBNF = r"""
root ::= "[" ws person "," ws person "," ws person "]"
person ::= "{" ws "\"name\":" ws "\"" [^"\\\x00-\x1F]{0,30} "\"," ws "\"age\":" ws [1-9] [0-9]? "," ws "\"likes\":" ws likes "}" ws
likes ::= "[" ws (like ("," ws like){0,2})? "]" ws
like ::= "\"" ("music" | "sport" | "books") "\"" ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
COLD = SamplingParams(temperature=0.0)
WARM = SamplingParams(seed=1)


class LlamaGrammar:
    """llama.cpp's grammar sampler as a constraint, for comparison."""

    complete = False

    def __init__(self, backend: Any, text: str) -> None:
        vocab = lib.llama_model_get_vocab(backend._model)
        self._handle = lib.llama_sampler_init_grammar(vocab, text.encode(), b"root")
        self._candidates = backend._samplers._candidates

    def take(self, token: int) -> bool:
        if not self._admitted(np.array([token])).size:
            return False
        lib.llama_sampler_accept(self._handle, token)
        return True

    def allowed(self, row: Any, k: int) -> Any:
        return self._admitted(np.arange(row.size))

    def _admitted(self, ids: Any) -> Any:
        self._candidates.apply(self._handle, np.zeros(ids.size, np.float32), ids)
        return ids[self._candidates.logits == 0.0]


def generate(backend: Any, sampler: Sampler, prompt: Sequence[int], n_tokens: int) -> tuple[list[float], str]:
    """Milliseconds of each choice, and the text."""
    backend.clear(0)
    pending, n_past, spent, said = list(prompt), 0, [], b""
    for _ in range(n_tokens):
        backend.decode([Entry(0, n_past, pending, True)])
        n_past += len(pending)
        began = time.perf_counter()
        token = sampler.sample(backend.logits(0)).token
        sampler.accept(token)
        spent.append((time.perf_counter() - began) * 1000)
        if backend.is_eog(token):
            break
        said += backend.piece(token)
        if sampler.complete:
            break
        pending = [token]
    return spent, said.decode(errors="replace")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--tokens", type=int, default=120)
    options = parser.parse_args()
    backend = llama.load(EngineSettings(str(options.model), n_ctx=1024, n_parallel=1))
    prompt = backend.tokenize(PROMPT, True, True)
    began = time.perf_counter()
    rulebook = Rulebook(backend)
    schema, gbnf = Rules("json_schema", schema_text(SCHEMA)), Rules("gbnf", GBNF)
    rulebook.constraint(schema)
    print(f"first rules of the model: {time.perf_counter() - began:.2f} s")
    began = time.perf_counter()
    rulebook.constraint(schema)
    print(f"rules after that: {(time.perf_counter() - began) * 1000:.1f} ms")

    def show(name: str, params: SamplingParams, constraint: Constraint | None = None, **more: Any) -> None:
        sampler = Sampler(params, 1, backend.chain, history=prompt, n_ctx=1024, constraint=constraint, **more)
        spent, text = generate(backend, sampler, prompt, options.tokens)
        ordered = sorted(spent)
        p99 = ordered[int(0.99 * (len(ordered) - 1))]
        print(
            f"{name:34} mean {statistics.mean(spent):7.3f}  median {statistics.median(spent):7.3f}"
            f"  p99 {p99:7.3f}  max {max(spent):7.3f}  ({len(spent)} tokens)"
        )
        if constraint is not None and sampler.complete:
            json.loads(text)

    show("greedy", COLD)
    show("default chain", WARM)
    show("default chain, 5 likelihoods", WARM, wanted=Wanted(5))
    show("default chain, 5 after sampling", WARM, wanted=Wanted(5, after_sampling=True))
    show("penalties and DRY", SamplingParams(repeat_penalty=1.1, dry_multiplier=0.8))
    show("mirostat 2", SamplingParams(mirostat=2))
    show("typical", SamplingParams(typical_p=0.9, samplers=("typ_p", "temperature")))
    for name, params in (("greedy", COLD), ("default chain", WARM)):
        show(f"schema, {name}", params, rulebook.constraint(schema))
        show(f"grammar, {name}", params, rulebook.constraint(gbnf))
        show(f"llama.cpp's grammar, {name}", params, LlamaGrammar(backend, GBNF))
    backend.close()


if __name__ == "__main__":
    main()
