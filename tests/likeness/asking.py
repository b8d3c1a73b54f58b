"""Sends the cases to a server and takes down what its answers look like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import requests

from tests.likeness.cases import Case
from tests.likeness.shape import Shape, of_stream, shape

# The same in many answers: looked at in one.
BULKY = ("generation_settings", "__verbose", "timings")

Likeness = dict[str, Any]
"""`status`, `type` (of the content, without its parameters) and `shape` of an answer."""


def ask(url: str, case: Case, headers: Mapping[str, str]) -> Likeness:
    """One answer's."""
    data = case.raw.encode() if case.raw else None
    answer = requests.request(
        case.method, url + case.path, json=case.body, data=data, headers=dict(headers), timeout=60
    )
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    unseen = () if case.in_full else BULKY
    return {"status": answer.status_code, "type": kind, "shape": _shape(kind, answer, unseen)}


def ask_all(url: str, cases: Iterable[Case], headers: Mapping[str, str]) -> dict[str, Likeness]:
    """By the cases' names."""
    return {case.name: ask(url, case, headers) for case in cases}


def _shape(kind: str, answer: requests.Response, unseen: tuple[str, ...]) -> Shape:
    if kind == "text/event-stream":
        return shape(of_stream(answer.text), unseen)
    if not answer.content:
        return {}
    if kind == "application/json":
        return shape(answer.json(), unseen)
    # Prometheus's text: the metrics' names and their kinds.
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", answer.text, re.MULTILINE))
