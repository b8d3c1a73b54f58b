"""GBNF as llama.cpp means it, tried on texts through llguidance itself; faults are named with their line."""

from __future__ import annotations

import pytest

from llamad.engine.gbnf import DEPTH_MAX, to_lark
from llamad.engine.guidance import Guide
from llamad.engine.vocabulary import Rules

GUIDE = Guide([bytes([byte]) for byte in range(256)] + [b""], [256])


def accepts(grammar: str, text: str) -> bool:
    constraint = GUIDE.compile(Rules("gbnf", grammar))
    return all(constraint.take(byte) for byte in text.encode()) and (
        constraint.complete or constraint.take(256)
    )


JSON = r"""
# every JSON value
root   ::= value
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= "yes" | "no" [.!]? # why not', ["yes", "no", "no!"], ["", "y", "yes!", "maybe"]),
        ('root ::= [a-z]* "end"', ["end", "trend", "endend", "weekend"], ["ende", "en"]),
        ('root ::= [0-9]+ "5" "!"', ["15!", "555!"], ["5!", "16!"]),
        ('root ::= item{2,3}\nitem ::= "- " [^\\n]+ "\\n"', ["- a\n- żółć\n"], ["- a\n", "- a\n" * 4]),
        ('root ::= (a |\n b) .\na ::= "\\x41\\u00e9"\nb::="/"', ["Aéx", "/ż", "/\n"], ["Aé", "é/"]),
        ('root ::= "a"{0,2} "b"{2} "c"{1,}', ["bbc", "aabbccc"], ["abc", "aaabbc", "bb"]),
        ("root ::= [^a-y] [a-]", ["z-", "\na", "🦊-"], ["a-", "zb"]),
        ('root ::= [/"\\]\\[\\\\]+', ['/"][\\'], ["^"]),
        ('root ::= ""', [""], ["x"]),
        ('root ::= "x" ""? "y"', ["xy"], ["x"]),
        ('root ::= | "a" root "b"', ["ab", "aaabbb"], ["aab", "ba"]),
        ('root ::= root "a" | "b"', ["b", "baa"], ["a"]),
        ('root ::= ((("a"*)*)*)* "b"', ["b", "aaab"], ["aaa"]),
        ('root ::= <[65]> "b"', ["Ab"], ["ab"]),
        ('root ::=\r\n  "a" |\r\n  "b"', ["a", "b"], ["c"]),
        (
            JSON,
            ['{"a": [1, 2.5e+3, "x\\u00e9"], "b": {}}', "null", "[\n  true]"],
            ["{a: 1}", '{"a" 1}', "01"],
        ),
    ],
    ids=lambda value: value.strip()[:30] if isinstance(value, str) else "",
)
def test_languages(grammar: str, good: list[str], bad: list[str]) -> None:
    for text in good:
        assert accepts(grammar, text), text
    for text in bad:
        assert not accepts(grammar, text), text


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("", "no rule 'root'"),
        ('other ::= "x"', "no rule 'root'"),
        ('root ::= "x"\n  \nfoo ::= bar', "line 3: there is no rule 'bar'"),
        ('root ::= "x', "line 1: expected more text, found the end"),
        ("root ::= [x", "more text"),
        ("root ::= [b-a]", "range"),
        ("root ::= []", "no character"),
        ('root ::= ("x"', "expected ')', found the end"),
        ('root ::= "x")', "expected a new line, found ')'"),
        ('root := "x"', "expected '::='"),
        ("root ::= *", "expected a new line, found '*'"),
        ('root ::= "\\q"', "no escape \\q"),
        ('root ::= "\\xZZ"', "no hexadecimal number"),
        ('root ::= "\\uD800"', "no character"),
        ('root ::= "\\UFFFFFFFF"', "no character"),
        ('root ::= "a"{3,2}', "repeats"),
        ('root ::= "a"{2001}', "2000"),
        ('root ::= "a"{,2}', "expected a number"),
        ('root ::= "a"{99999999999}', "expected a number"),
        ("root ::= <think>", "by their ids"),
        ("root ::= " + "(" * (DEPTH_MAX + 1), str(DEPTH_MAX)),
        ("::= x", "the name of a rule"),
        ('root ::= ("ab" | "a")\n  "c"', "line 2: expected the name of a rule"),
    ],
)
def test_faults_are_named(grammar: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        to_lark(grammar)
    assert words in str(caught.value)
