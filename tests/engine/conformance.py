"""How well answers conform to schemas, on the JSON Schema Test Suite: python -m tests.engine.conformance FOLDER

FOLDER holds the suite's files of one draft (tests/draft2020-12; the source package of `jsonschema` has them under
`json/`). Two questions for each schema that is not refused:

* Does every answer conform? Answers are drawn byte by byte, at random among what is allowed, and validated.
* Is any of the suite's own instances let through that is invalid? (Valid ones may be refused: properties come in the order
  of the schema, and numbers and blanks in a canonical form.)
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from llamad.api.schema import schema_text
from llamad.engine.guidance import Guide, Matcher
from llamad.engine.vocabulary import Rules
from llamad.errors import LlamadError, RequestError

END = 256
BYTES_MAX = 600
ANSWERS = 4
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
_ROW = np.zeros(END + 1, np.float32)
_CLOSING = frozenset(b'"}]')


@dataclass
class Score:
    """`refused`: schemas, by reason. `unfinished`: answers that did not end within BYTES_MAX."""

    schemas: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    conforming: int = 0
    unfinished: int = 0
    valid: int = 0
    valid_taken: int = 0
    invalid: int = 0
    invalid_taken: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def honoured(self) -> int:
        return self.schemas - sum(self.refused.values())

    def report(self) -> str:
        """A few lines for people."""
        finished = self.answers - self.unfinished
        lines = [
            f"schemas {self.schemas}, honoured {self.honoured}, refused {self.schemas - self.honoured}",
            f"answers {self.answers}, ended {finished}, of these conforming {self.conforming}",
            f"invalid instances {self.invalid}, let through {self.invalid_taken}",
            f"valid instances {self.valid}, let through {self.valid_taken}",
            *(f"refused {count}: {reason}" for reason, count in self.refused.most_common(12)),
            *self.faults[:40],
        ]
        return "\n".join(lines)


def run(folder: Path) -> Score:
    """All cases of the folder's files. Its name is the draft's, which says how its schemas are to be read."""
    guide = Guide([bytes([byte]) for byte in range(END)] + [b""], [END])
    score = Score()
    for name, case in _cases(folder):
        _judge(guide, score, name, case)
    return score


def _cases(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(folder.glob("*.json")):
        for case in json.loads(file.read_text()):
            if isinstance(case["schema"], dict):
                case["schema"] = {"$schema": DRAFTS[folder.name], **case["schema"]}
                yield f"{file.stem}: {case['description']}", case


def _judge(guide: Guide, score: Score, name: str, case: dict[str, Any]) -> None:
    schema = case["schema"]
    score.schemas += 1
    try:
        rules = Rules("json_schema", schema_text(schema))
        guide.compile(rules)
    except RequestError as error:
        score.refused[error.message.partition(": ")[2][:60]] += 1
        return
    validator = _validator(schema)
    for test in case["tests"]:
        # The suite's schemas of formats are annotations there; here they are followed.
        _try_instance(guide.compile(rules), score, name, test, validator.is_valid(test["data"]))
    for seed in range(ANSWERS):
        score.answers += 1
        text = _answer(guide.compile(rules), random.Random(seed))
        if text is None:
            score.unfinished += 1
        elif validator.is_valid(json.loads(text)):
            score.conforming += 1
        else:
            score.faults.append(f"{name}: answer {text!r} to {json.dumps(schema)[:200]}")


def _validator(schema: dict[str, Any]) -> Any:
    kind = jsonschema.validators.validator_for(schema)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def _try_instance(matcher: Matcher, score: Score, name: str, test: dict[str, Any], valid: bool) -> None:
    data = json.dumps(test["data"], separators=(",", ":"), ensure_ascii=False).encode()
    taken = all(matcher.take(byte) for byte in data) and (matcher.complete or matcher.take(END))
    if valid:
        score.valid += 1
        score.valid_taken += taken
        return
    score.invalid += 1
    if taken:
        score.invalid_taken += 1
        score.faults.append(f"{name}: let through {data.decode()!r} ({test['description']})")


def _answer(matcher: Matcher, chance: random.Random) -> str | None:
    """One random answer; after a while it takes every way out. None if there was none."""
    said = bytearray()
    while len(said) < BYTES_MAX and not matcher.complete:
        try:
            allowed = [int(token) for token in matcher.allowed(_ROW, 0)]
        except LlamadError:
            return None
        closing = [token for token in allowed if token in _CLOSING or token == END]
        hurry = closing and (len(said) > 60 or chance.random() < 0.3)
        token = chance.choice(closing if hurry else allowed)
        assert matcher.take(token), f"{token} was allowed after {bytes(said)!r}"
        if token == END:
            return said.decode()
        said.append(token)
    return said.decode() if matcher.complete else None


if __name__ == "__main__":
    print(run(Path(sys.argv[1])).report())
