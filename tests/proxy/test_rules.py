"""Request rules on bodies: what changes, and that nothing else does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.errors import RequestError
from llamad.json_values import VALUES_MAX
from llamad.proxy.rules import apply
from llamad.wire.policy import Rules

BODY = b'{ "model":"m", "temperature" : 1e-1, "messages":[ {"content":"\\u00fc \xc3\xbc"} ], "big":123456789012345678901 }'


def test_a_body_that_no_rule_changes_is_the_same_object():
    for rules in (
        Rules(),
        Rules(remove=("user",)),
        Rules(default={"temperature": 0.2}),
        Rules(force={"model2": 1}, remove=()),
    )[:3]:
        assert apply(rules, BODY) is BODY
    assert apply(Rules(force={"temperature": 0.1}), b'{"temperature": 0.1}') == b'{"temperature": 0.1}'


def test_untouched_values_keep_their_bytes():
    changed = apply(Rules(force={"seed": 1}), BODY)
    assert b"1e-1" in changed
    assert b'[ {"content":"\\u00fc \xc3\xbc"} ]' in changed
    assert b"123456789012345678901" in changed


@pytest.mark.parametrize(
    ("rules", "before", "after"),
    [
        (Rules(default={"a": 1}), {}, {"a": 1}),
        (Rules(default={"a": 1}), {"a": 2}, {"a": 2}),
        (Rules(default={"a": 1}), {"a": None}, {"a": 1}),
        (Rules(default={"a": None}), {"b": 1}, {"b": 1, "a": None}),
        (Rules(force={"a": [1, {"b": "ü"}]}), {"a": 2}, {"a": [1, {"b": "ü"}]}),
        (Rules(remove=("a", "b")), {"a": 1, "c": 2}, {"c": 2}),
        (Rules(remove=("a",), default={"a": 3}), {"a": 1}, {"a": 3}),
        (Rules(default={"a": 1}, force={"a": 2}), {}, {"a": 2}),
        (Rules(force={"max_tokens": 5}), {"max_completion_tokens": 900, "n_predict": 9}, {"max_tokens": 5}),
        (Rules(default={"max_tokens": 5}), {"max_completion_tokens": 9}, {"max_completion_tokens": 9}),
        (Rules(default={"max_tokens": 5}), {"max_completion_tokens": None}, {"max_tokens": 5}),
        (Rules(remove=("max_tokens",)), {"max_tokens": 1, "max_completion_tokens": 2}, {}),
    ],
)
def test_rules(rules: Rules, before: dict[str, object], after: dict[str, object]):
    assert json.loads(apply(rules, json.dumps({"model": "m", **before}).encode())) == {"model": "m", **after}


def test_a_field_that_is_said_twice_is_forced_once():
    assert apply(Rules(force={"n": 1}), b'{"n":5,"n":6}') == b'{"n":1}'


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b'{"a":', b"\xff"])
def test_what_is_no_object_is_refused(body: bytes):
    with pytest.raises(RequestError) as caught:
        apply(Rules(force={"a": 1}), body)
    assert (caught.value.status, caught.value.kind) == (400, "bad-json")


names = st.sampled_from(["a", "b", "n", "n_cmpl", "stop", "max_tokens", "n_predict"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
fields = st.dictionaries(names, values, max_size=5)


@given(before=fields, default=fields, force=fields, remove=st.lists(names, max_size=3))
def test_forced_fields_are_as_forced_and_the_rest_is_no_invention(
    before: dict[str, object], default: dict[str, object], force: dict[str, object], remove: list[str]
):
    rules = Rules(default, force, tuple(remove))
    after = json.loads(apply(rules, json.dumps(before).encode()))
    last = {}
    for name, value in force.items():
        last[name] = value
    for name, value in after.items():
        assert value in (before.get(name, value), default.get(name, value), last.get(name, value))
    assert not set(after) - set(before) - set(default) - set(force)


def test_a_body_of_millions_of_fields_is_refused_before_it_is_taken_apart():
    body = b'{"model": "a"' + b', "b": 1' * (VALUES_MAX + 1) + b"}"
    with pytest.raises(RequestError) as caught:
        apply(Rules(remove=("x",)), body)
    assert caught.value.kind == "too-many-values"
