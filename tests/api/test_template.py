"""Chat templates: Hugging Face's environment, the sandbox, the meters, the begin token."""

from __future__ import annotations

from datetime import datetime

import pytest

from llamad.api.template import CHATML, TURNS_MAX, ChatTemplate
from llamad.errors import LlamadError, RequestError

USER = {"role": "user", "content": "hi"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}


def render(source: str, *messages: dict, **options) -> str:
    return ChatTemplate(source, **options).render(messages or (USER,))


def test_chatml_is_the_fallback() -> None:
    text = render(CHATML, {"role": "system", "content": "be brief"}, USER)
    assert (
        text
        == "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_generation_prompt_can_be_left_out() -> None:
    text = ChatTemplate(CHATML).render((USER,), add_generation_prompt=False)
    assert text.endswith("<|im_end|>\n")


@pytest.mark.parametrize(
    ("add_bos", "expected"),
    [(True, "hi</s>"), (False, "<s>hi</s>")],
    ids=["tokeniser adds it", "tokeniser does not"],
)
def test_the_begin_token_is_not_doubled(add_bos: bool, expected: str) -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    assert render(source, bos_token="<s>", eos_token="</s>", add_bos=add_bos) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}\n  {% if true %}\nx\n  {% endif %}\n{% endfor %}", "x\n"),
        (
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        ("{{ {'a': '<é>', 'b': [1, none]} | tojson }}", '{"a": "<é>", "b": [1, null]}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{{ strftime_now('%d %b %Y') }}", "01 Dec 2024"),
        ("{% generation %}x{% endgeneration %}", "x"),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "1",
        ),
        ("{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('ab') }}", "abab"),
        ("{% set a, b = 'x', 'y' %}{{ b }}{{ a }}", "yx"),
        ("{{ '-' * 3 }}{{ 2 ** 5 }}{{ 'żółć' | upper }}", "---32ŻÓŁĆ"),
        ("{% if tools %}T{% endif %}{{ unknown is defined }}{{ tools is defined }}", "FalseFalse"),
        ("{{ 'a' + messages[0].name + 'b' }}", "ab"),
        ("{% set q = [] %}{% set _ = q.append('x') %}{{ q.pop(0) }}{{ q | length }}", "x0"),
        ("{{ date_string }}; {{ datetime }}", "01 Dec 2024; Dec 01 2024"),
    ],
)
def test_templates_run_as_in_hugging_face(source: str, expected: str) -> None:
    assert render(source, now=lambda: datetime(2024, 12, 1)) == expected


def test_variables_reach_the_template_but_cannot_replace_its_functions() -> None:
    source = "{{ enable_thinking }}{{ raise_exception is string }}"
    variables = {"enable_thinking": False, "raise_exception": "x"}
    assert ChatTemplate(source).render((USER,), variables=variables) == "FalseFalse"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ messages[0]['content'] + '!' }}", "one\ntwo!"),
        ("{{ messages[0].content }}", "one\ntwo"),
        (
            "{% for m in messages %}{% if m.content is string %}S{{ m.content }}{% else %}{% for p in m.content %}P{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
            "PonePtwo",
        ),
    ],
    ids=["adds content", "prints content", "knows parts"],
)
def test_parts_are_joined_where_the_template_does_not_take_them(source: str, expected: str) -> None:
    assert render(source, PARTS) == expected


def test_a_template_that_wants_parts_gets_parts() -> None:
    assert render("{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}", USER) == "[hi]"


def test_a_refusal_is_told_in_the_templates_own_words() -> None:
    source = (
        "{% if messages[0].role == 'robot' %}{{ raise_exception('Robots are not supported') }}{% endif %}"
    )
    with pytest.raises(RequestError, match="Robots are not supported") as caught:
        render(source, {"role": "robot", "content": "x"})
    assert caught.value.status == 400
    assert caught.value.kind == "template-refused"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ messages.clear() }}", "unsafe"),
        ("{{ messages.extend(messages) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", str(TURNS_MAX)),
        (
            "{% set ns = namespace(x='a') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "keeps over",
        ),
        ("{% for a in range(99999999999) %}{% endfor %}", "keeps over"),
        ("{{ 'a' * 9999999999 }}", "too large"),
        ("{{ [1] * 9999999999 }}", "too large"),
        ("{{ 9 ** 99999999 }}", "too large"),
        ("{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ("{% set x = 'x' * 9999999 %}{{ x }}{{ x }}", "characters"),
        ("{{ 1 / 0 }}", "zero"),
        ("{{ unknown.field }}", "undefined"),
    ],
)
def test_a_template_that_runs_wild_is_stopped(source: str, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        render(source)


def test_a_template_that_does_not_compile_says_where() -> None:
    with pytest.raises(LlamadError, match=r"cannot compile .*line 2") as caught:
        ChatTemplate("x\n{% if %}")
    assert caught.value.kind == "bad-template"


def test_what_a_template_can_do_is_found_by_rendering() -> None:
    """As llama-server's `/props` says it, here of ChatML."""
    found = ChatTemplate(CHATML).traits.capabilities()
    assert {name for name, can in found.items() if can} == {"supports_string_content", "supports_system_role"}
    thinking = (
        "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}{{ reasoning_effort }}"
    )
    found = ChatTemplate(thinking).traits.capabilities()
    assert found["supports_preserve_reasoning"]
    assert found["supports_reasoning_effort"]
