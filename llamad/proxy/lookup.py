"""Which model a request is for: pure, from the query, the content type and the body.

The body is decoded no further than the name. JSON is whatever is no form, as many clients send no content type.
"""

from __future__ import annotations

import io
from typing import NamedTuple
from urllib.parse import parse_qs

import falcon
import msgspec
from falcon.media import MultipartFormHandler

from llamad.errors import RequestError

MODEL_NAME_BYTES_MAX = 1024
QUERY_FIELDS_MAX = 64

INFERENCE_PATHS = (
    "/v1/chat/completions",
    "/chat/completions",
    "/v1/completions",
    "/completions",
    "/completion",
    "/infill",
    "/v1/embeddings",
    "/embeddings",
    "/embedding",
    "/v1/rerank",
    "/rerank",
    "/reranking",
    "/v1/reranking",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/v1/responses",
    "/responses",
    "/v1/messages",
    "/v1/chat/completions/input_tokens",
    "/chat/completions/input_tokens",
    "/v1/responses/input_tokens",
    "/responses/input_tokens",
    "/v1/messages/count_tokens",
)

CONTROL_PATH = "/v1/chat/completions/control"

# What they take is text, not a request to generate: it follows no rules and takes no slot.
TEXT_PATHS = frozenset(
    (
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/v1/chat/completions/input_tokens",
        "/chat/completions/input_tokens",
        "/v1/responses/input_tokens",
        "/responses/input_tokens",
        "/v1/messages/count_tokens",
    )
)

_TRUE = {"true", "1", "on", "yes"}
_FALSE = {"false", "0", "off", "no"}
_WORD_BY_FIRST_BYTE = {ord("t"): "boolean", ord("f"): "boolean", ord("["): "array", ord("{"): "object"}
_ABSENT = msgspec.Raw()


class Wish(NamedTuple):
    """What to ask a lease for; see `llamad.wire.lease.Ask`. `ruled`: the model's rules may change the body.

    `slot`: it is work for one of the instance's slots.
    """

    model: str
    autoload: bool | None = None
    load: bool = True
    ruled: bool = False
    slot: bool = True


# Raw: what may be anything must not be made into objects, of which a body has room for tens of millions.
class _Named(msgspec.Struct):
    model: msgspec.Raw = _ABSENT


class _Streamed(msgspec.Struct):
    stream: msgspec.Raw = _ABSENT


_decode_name = msgspec.json.Decoder(_Named).decode
_decode_stream = msgspec.json.Decoder(_Streamed).decode
_decode_text = msgspec.json.Decoder(str).decode


def wish_of_body(content_type: str, body: bytes | bytearray, query: str) -> Wish:
    """The wish of an inference request. Raises RequestError (400) with a kind for each way to get it wrong."""
    model = _model_in_form(content_type, body) if is_form(content_type) else _model_in_json(body)
    return Wish(_checked(model), autoload=_autoload(query))


def is_form(content_type: str) -> bool:
    """Whether a body is fields and files, of which only `model` is looked at."""
    return content_type.lower().startswith("multipart/form-data")


def wish_of_query(query: str) -> Wish | None:
    """The wish of a read, which never loads; None when the query names no model."""
    model = _query(query).get("model")
    return Wish(_checked(model), autoload=False, load=False) if model else None


def wish_of_upgrade(query: str) -> Wish:
    """The wish of a WebSocket: the model is named in the query, and loads when it has to. Raises RequestError."""
    return Wish(_checked(_query(query).get("model")), autoload=_autoload(query))


def wants_stream(content_type: str, body: bytes | bytearray) -> bool:
    """Whether a body that names a model asks for a stream."""
    return not is_form(content_type) and bytes(_decode_stream(body).stream) == b"true"


def field_of_query(query: str, name: str) -> str:
    """The last value of a field, "" for none. Raises RequestError."""
    return _query(query).get(name, "")


def model_missing() -> RequestError:
    """For a request that has to name a model and does not."""
    return RequestError("cannot choose a model: the request names none in 'model'", kind="model-missing")


def _model_in_json(body: bytes | bytearray) -> str | None:
    try:
        return _text_of(bytes(_decode_name(body).model))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read the body as JSON: {error}", kind="bad-json") from None
    except RecursionError:
        raise RequestError("cannot read the body as JSON: it is nested too deeply", kind="bad-json") from None


def _text_of(value: bytes) -> str | None:
    if value in (b"", b"null"):
        return None
    if not value.startswith(b'"'):
        word = _WORD_BY_FIRST_BYTE.get(value[0], "number")
        raise RequestError(
            f"cannot take a model name that is no string: got {word}", kind="model-not-a-string"
        )
    return _decode_text(value)


def _model_in_form(content_type: str, body: bytes | bytearray) -> str | None:
    """The form field `model`, wherever it stands; the parser passes over the files without copying them."""
    try:
        form = MultipartFormHandler().deserialize(io.BytesIO(body), content_type, len(body))
        for part in form:
            if part.name == "model":
                return part.text
    except (falcon.HTTPError, ValueError) as error:
        reason = getattr(error, "description", None) or error
        raise RequestError(f"cannot read the body as a form: {reason}", kind="bad-form") from None
    return None


def _checked(model: str | None) -> str:
    if not model:
        raise model_missing()
    name_bytes = len(model.encode(errors="surrogatepass"))
    if name_bytes > MODEL_NAME_BYTES_MAX:
        raise RequestError(
            f"cannot take a model name of {name_bytes} bytes: at most {MODEL_NAME_BYTES_MAX}",
            kind="model-name-too-long",
        )
    return model


def _autoload(query: str) -> bool | None:
    word = _query(query).get("autoload")
    if word is None:
        return None
    if word.lower() in _TRUE:
        return True
    if word.lower() in _FALSE:
        return False
    raise RequestError(f"cannot read autoload={word!r}: write true or false", kind="bad-query")


def _query(query: str) -> dict[str, str]:
    """The last value of each field."""
    if not query:
        return {}
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
    except ValueError as error:
        raise RequestError(f"cannot read the query: {error}", kind="bad-query") from None
    return {name: values[-1] for name, values in fields.items()}
