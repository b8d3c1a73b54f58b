"""Which model a request names, and what a client is told when it names none well."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from llamad.errors import RequestError
from llamad.proxy.lookup import MODEL_NAME_BYTES_MAX, Wish, wants_stream, wish_of_body, wish_of_query

JSON = "application/json"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "a"}',
        b'{"messages": [{"role": "user", "content": "model"}], "model": "a", "stream": true}',
        b'\n {"stream": false, "model":"\\u0061"} ',
        bytearray(b'{"model": "a", "deep": {"model": "b"}}'),
        b'{"model": "b", "model": "a"}',
    ],
)
def test_json_bodies_name_their_model(body):
    assert wish_of_body(JSON, body, "") == Wish("a")


@pytest.mark.parametrize("name", ["org/model:Q4_K_M", "模型 🦙", "a%2Fb", "UPPER", "a\u0000b"])
def test_names_survive_as_they_are(name):
    assert wish_of_body(JSON, json.dumps({"model": name}).encode(), "").model == name
    assert wish_of_body(JSON, json.dumps({"model": name}, ensure_ascii=False).encode(), "").model == name


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "bad-json"),
        (b"\x00\x00", "bad-json"),
        (b'{"model": "a"', "bad-json"),
        (b"[1, 2]", "bad-json"),
        (b'"a"', "bad-json"),
        (b'{"model": "\xff"}', "bad-json"),
        (b"{} trailing", "bad-json"),
        (b'{"model": "a", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}", "bad-json"),
        (b"{}", "model-missing"),
        (b'{"model": null}', "model-missing"),
        (b'{"model": ""}', "model-missing"),
        (b'{"Model": "a"}', "model-missing"),
        (b'{"model": 7}', "model-not-a-string"),
        (b'{"model": true}', "model-not-a-string"),
        (b'{"model": ["a"]}', "model-not-a-string"),
        (b'{"model": {"id": "a"}}', "model-not-a-string"),
        (b'{"model": "' + b"x" * (MODEL_NAME_BYTES_MAX + 1) + b'"}', "model-name-too-long"),
    ],
)
def test_each_mistake_has_its_kind(body, kind):
    with pytest.raises(RequestError) as caught:
        wish_of_body(JSON, body, "")
    assert (caught.value.kind, caught.value.status) == (kind, 400)
    assert caught.value.message.startswith("cannot")
    assert len(caught.value.message) < 300


def test_a_mistyped_model_is_told_its_type():
    with pytest.raises(RequestError, match="got number"):
        wish_of_body(JSON, b'{"model": 1.5}', "")


def test_what_is_no_form_is_taken_for_json():
    assert wish_of_body("application/x-www-form-urlencoded", b'{"model": "a"}', "").model == "a"
    assert wish_of_body("", b'{"model": "a"}', "").model == "a"


def form(*parts: tuple[str, bytes]) -> bytes:
    lines = [
        b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (n.encode(), v) for n, v in parts
    ]
    return b"".join(lines) + b"--b--\r\n"


def test_a_form_names_its_model_in_a_field_wherever_it_stands():
    content_type = "multipart/form-data; boundary=b"
    body = form(("file", b"\x00\xff" * 100_000), ("model", "模型".encode()))
    assert wish_of_body(content_type, body, "").model == "模型"
    assert wish_of_body(content_type, bytearray(form(("model", b"a"), ("file", b"x"))), "").model == "a"


@pytest.mark.parametrize(
    ("content_type", "body", "kind"),
    [
        ("multipart/form-data; boundary=b", form(("file", b"x")), "model-missing"),
        ("multipart/form-data; boundary=b", b"--b\r\nbroken", "bad-form"),
        ("multipart/form-data", form(("model", b"a")), "bad-form"),
    ],
)
def test_mistakes_in_a_form(content_type, body, kind):
    with pytest.raises(RequestError) as caught:
        wish_of_body(content_type, body, "")
    assert (caught.value.kind, caught.value.status) == (kind, 400)


@pytest.mark.parametrize(
    ("query", "autoload"),
    [
        ("", None),
        ("x=1", None),
        ("autoload=true", True),
        ("autoload=0", False),
        ("a=b&autoload=False", False),
    ],
)
def test_autoload_is_the_clients_choice(query, autoload):
    assert wish_of_body(JSON, b'{"model": "a"}', query).autoload is autoload


def test_an_unknown_autoload_word_is_refused():
    with pytest.raises(RequestError, match="autoload='maybe'"):
        wish_of_body(JSON, b'{"model": "a"}', "autoload=maybe")


def test_reads_never_load():
    assert wish_of_query("model=org%2Fm%3AQ4") == Wish("org/m:Q4", autoload=False, load=False)
    assert wish_of_query("model=") is None
    assert wish_of_query("") is None


@pytest.mark.parametrize("name", [b"\\ud800", b"a\\udfffb", b"\\ud800\\ud800", b"\xed\xa0\x80"])
def test_half_a_character_is_no_name(name: bytes):
    with pytest.raises(RequestError) as caught:
        wish_of_body("application/json", b'{"model": "%b"}' % name, "")
    assert (caught.value.status, caught.value.kind) == (400, "bad-json")


@pytest.mark.parametrize("field", ["model", "stream", "x"])
def test_what_may_be_anything_is_not_made_into_objects(field: str):
    """A worker would take gigabytes for it, and all of its streams would wait."""
    named = b"" if field == "model" else b'"model": "a", '
    body = b"{" + named + b'"' + field.encode() + b'": [' + b"[]," * 500_000 + b"[]]}"
    tracemalloc.start()
    try:
        if field == "model":
            with pytest.raises(RequestError, match="got array"):
                wish_of_body(JSON, body, "")
        else:
            assert wish_of_body(JSON, body, "").model == "a"
            assert not wants_stream(JSON, body)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(body)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("word", "wanted"), [("true", True), ("false", False), ("1", False), ('"true"', False)]
)
def test_a_stream_is_asked_for_by_true(word: str, wanted: bool):
    assert wants_stream(JSON, f'{{"model": "a", "stream" : {word} }}'.encode()) is wanted
    assert not wants_stream(JSON, b'{"model": "a"}')
