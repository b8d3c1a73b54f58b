"""Every error that crosses a border of llamad: by whose fault it is, with a stable kind and an HTTP status.

A *kind* is a slug that clients may match on and that never changes once released; the message is for people:
lower-case, starts with "cannot", and carries the numbers. The body has the OpenAI shape with the `type` words of
llama.cpp's server, so the official clients raise their own exception classes. Anthropic's routes have a shape of their
own: whoever answers there, an instance or the front, says so by `body_for`.

Raise or return these; log them once, at the edge.
"""

from __future__ import annotations

from typing import Any

# llama.cpp's server words for each status (tools/server, `format_error_response`).
TYPE_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    414: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    500: "server_error",
    501: "not_supported_error",
    502: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
}
# Where they have a word of their own for what went wrong.
TYPE_BY_KIND = {"exceed-context-size": "exceed_context_size_error"}


class LlamadError(Exception):
    """Base of the tree.

    `details` are extra fields of the body's `error` object (numbers for programs); `retry_after_s` becomes a
    `Retry-After` header.
    """

    kind = "internal"
    status = 500

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or self.kind
        self.status = status or self.status
        self.retry_after_s = retry_after_s
        self.details = details or {}

    def body(self) -> dict[str, Any]:
        """The JSON document a client gets."""
        return error_body(self.kind, self.status, self.message, self.details)


class RequestError(LlamadError):
    """The client's fault: the request cannot be served as it is (4xx)."""

    kind = "bad-request"
    status = 400


class NotFoundError(RequestError):
    """A model, route or resource that does not exist. Never answered with a substitute."""

    kind = "not-found"
    status = 404


class ConflictError(RequestError):
    """The request is fine but not in this state."""

    kind = "conflict"
    status = 409


class UnavailableError(LlamadError):
    """Nobody's fault: no room, no time, not now (503, 429)."""

    kind = "unavailable"
    status = 503


class OutOfMemoryError(UnavailableError):
    """A device has not the memory that was asked of it. It may have it later, or for less."""

    kind = "out-of-memory"


class ChildError(LlamadError):
    """A child process died or misbehaved (502)."""

    kind = "instance-died"
    status = 502


class ProtocolError(LlamadError):
    """A peer broke a wire protocol. `remote` tells whose fault it is: theirs, or ours."""

    kind = "protocol"

    def __init__(self, message: str, *, remote: bool = True) -> None:
        super().__init__(message)
        self.remote = remote


class ConfigError(LlamadError):
    """One problem in a configuration file, printed as `file:line: cannot ...`."""

    kind = "bad-config"

    def __init__(self, message: str, *, file: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.file = file
        self.line = line

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return where + self.message


class AddressTakenError(ConfigError):
    """An address that cannot be listened on now, and may be free a moment later."""

    kind = "address-taken"


def error_body(kind: str, status: int, message: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """`{"error": {"code", "message", "type", "kind", ...}}`: OpenAI's shape, llama.cpp's types, llamad's kind."""
    error: dict[str, Any] = {
        "code": status,
        "message": message,
        "type": TYPE_BY_KIND.get(kind) or TYPE_BY_STATUS.get(status, "server_error"),
        "kind": kind,
    }
    error.update(details or {})
    return {"error": error}


# Anthropic's words (docs.anthropic.com, errors). Other refusals are bad requests, other failures its server's.
_ANTHROPIC_TYPE = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_ANTHROPIC_PATH = "/v1/messages"


def speaks_anthropic(path: str) -> bool:
    """Whether a route, known or not, is one of Anthropic's. Slashes at the end do not matter."""
    return path == _ANTHROPIC_PATH or path.startswith(_ANTHROPIC_PATH + "/")


def body_for(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """An error's body in the shape that the clients of this route know."""
    return anthropic_error(body) if speaks_anthropic(path) else body


def anthropic_error(body: dict[str, Any]) -> dict[str, Any]:
    """`{"type": "error", "error": {"type", "message", "details": {"error_code"}, ...}}`, with the kind as code."""
    error = dict(body["error"])
    status = error.pop("code")
    other = "invalid_request_error" if status < 500 else "api_error"
    error["type"] = _ANTHROPIC_TYPE.get(status, other)
    if error["kind"] == "exceed-context-size":
        # By these words its clients know that they have to sum up the conversation.
        error["message"] = f"prompt is too long: {error['message']}"
    return {"type": "error", "error": error | {"details": {"error_code": error["kind"]}}}
