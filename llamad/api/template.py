"""The model's own chat template, in jinja2's immutable sandbox. The one file that touches jinja2.

Templates are written for Hugging Face's environment: blocks trimmed, `break` and `continue`, `raise_exception`,
`strftime_now`, `tojson` without escaping, `{% generation %}` as a mere mark. They come inside model files, and they are
programs, so a rendering is metered: there are limits on the turns of its loops and calls of its macros, on the
characters and elements that `range` and `set` keep, on what one operator makes, and on the result. That stops mistakes
and pranks; a template stays as trusted as the weights it comes with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from llamad.api.conversation import Message
from llamad.api.traits import Traits
from llamad.errors import LlamadError, RequestError

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""For models without a template, as llama-server does. For them its end mark is no token but mere text."""
CHATML_END = "<|im_end|>"

RENDER_CHARS_MAX = 16 << 20
KEPT_MAX = 64 << 20
TURNS_MAX = 1 << 18
INTEGER_BITS_MAX = 4096

_TURN = "_llamad_turn"
_KEEP = "_llamad_keep"


class _Refused(Exception):
    """The template itself refuses the conversation, by `raise_exception`."""


class ChatTemplate:
    """A compiled template with the model's special tokens.

    `add_bos`: the tokeniser will put the begin token in front, so one that the template writes is taken off.
    `now` is the clock of `strftime_now`. Raises LlamadError of kind `bad-template` if it does not compile.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        add_bos: bool = False,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._taken_off = bos_token if add_bos else ""
        self._now = now
        self._template = _compile(source)
        self.traits = Traits(
            lambda messages, tools, variables: self._run(messages, tools, True, variables), source
        )

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """The prompt's text. Raises RequestError with the template's own words if it refuses the messages."""
        fitting = self.traits.fit(messages)
        return self._run(fitting, tools, add_generation_prompt, variables).removeprefix(self._taken_off)

    def _run(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]],
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        now = self._now()
        context: dict[str, Any] = {
            "datetime": now.strftime("%b %d %Y"),
            "date_string": now.strftime("%d %b %Y"),
        }
        context |= {**variables, **self._tokens, **_Meter().functions(), "messages": messages}
        # What is not there is not defined: templates ask for that.
        if tools:
            context["tools"] = tools
        if add_generation_prompt:
            context["add_generation_prompt"] = True
        context |= {
            "raise_exception": _raise_exception,
            "strftime_now": now.strftime,
        }
        try:
            return _collect(self._template.generate(context))
        except _Refused as refusal:
            raise RequestError(f"cannot use these messages: {refusal}", kind="template-refused") from None
        except Exception as error:  # noqa: BLE001 - a template is a program and may fail in any way
            reason = str(error) or type(error).__name__
            raise RequestError(f"cannot render the chat template: {reason}", kind="template-failed") from None


def _collect(pieces: Iterable[str]) -> str:
    parts, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > RENDER_CHARS_MAX:
            raise ValueError(f"over {RENDER_CHARS_MAX} characters")
        parts.append(piece)
    return "".join(parts)


class _Meter:
    """Counts what one rendering spends."""

    def __init__(self) -> None:
        self._turns_left = TURNS_MAX
        self._kept_left = KEPT_MAX

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What the instrumented template calls."""
        return {_TURN: self._turn, _KEEP: self._keep, "range": self._range}

    def _turn(self) -> None:
        self._turns_left -= 1
        if self._turns_left < 0:
            raise SecurityError(f"its loops and macros turn over {TURNS_MAX} times")

    def _keep(self, value: Any) -> Any:
        if isinstance(value, str | list | tuple | dict):
            self._spend(len(value))
        return value

    def _range(self, *bounds: int) -> range:
        numbers = range(*bounds)
        self._spend(len(numbers))
        return numbers

    def _spend(self, size: int) -> None:
        self._kept_left -= size
        if self._kept_left < 0:
            raise SecurityError(f"it keeps over {KEPT_MAX} characters and elements")


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with a bound on what a single operator can make."""

    intercepted_binops = frozenset({"*", "**"})

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Some templates keep a queue; one element more is bounded by the turns of loops."""
        if isinstance(obj, list) and attr in ("append", "pop"):
            return True
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if _product_size(operator, left, right) > RENDER_CHARS_MAX:
            raise SecurityError(f"the result of {operator} is too large")
        return super().call_binop(context, operator, left, right)


def _product_size(operator: str, left: Any, right: Any) -> int:
    """Characters or elements of a repetition; a number over INTEGER_BITS_MAX counts as too large."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
        return 0 if bits <= INTEGER_BITS_MAX else RENDER_CHARS_MAX + 1
    if isinstance(right, int) and hasattr(left, "__len__"):
        return len(left) * right
    if isinstance(left, int) and hasattr(right, "__len__"):
        return len(right) * left
    return 0


class _Undefined(jinja2.Undefined):
    """What is not there adds nothing to a text, as in llama.cpp."""

    def __add__(self, other: Any) -> Any:
        return other if isinstance(other, str) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return other if isinstance(other, str) else super().__radd__(other)


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's words for training; here it is only a bracket."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _compile(source: str) -> jinja2.Template:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=_Undefined,
        extensions=["jinja2.ext.loopcontrols", _GenerationTag],
    )
    environment.filters["tojson"] = _tojson
    try:
        tree = environment.parse(source)
        _instrument(tree)
        return environment.from_string(tree)
    except (jinja2.TemplateSyntaxError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        where = f" (line {line})" if line else ""
        raise LlamadError(f"cannot compile the chat template: {error}{where}", kind="bad-template") from None


def _instrument(tree: nodes.Template) -> None:
    """Make loops and macros count a turn at their start, and `set` the size of what it keeps."""
    block: nodes.For | nodes.Macro
    for block in tree.find_all((nodes.For, nodes.Macro)):  # type: ignore[assignment]
        block.body.insert(0, nodes.ExprStmt(_call(_TURN, [], block.lineno), lineno=block.lineno))
    for assignment in tree.find_all(nodes.Assign):
        value = cast(nodes.Expr, assignment.node)
        assignment.node = _call(_KEEP, [value], assignment.lineno)


def _call(name: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    function = nodes.Name(name, "load", lineno=line)
    return nodes.Call(function, arguments, [], None, None, lineno=line)


def _raise_exception(message: str) -> None:
    raise _Refused(message)


def _tojson(
    value: Any,
    indent: int | None = None,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without the escapes for HTML that jinja2's own filter makes."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
