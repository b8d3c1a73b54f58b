"""Bodies of the rerank routes, and their answers."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from llamad.api.rerank import DOCUMENTS_MAX, pair_tokens, parse_rerank, rerank_document
from llamad.engine.forms import PairForm
from llamad.engine.vocabulary import Embedded
from llamad.errors import RequestError
from tests.api.vocabulary_for_tests import ByteVocabulary

BODY = {"query": "q", "documents": ["a", {"text": "b"}, "c", "a", "e"]}
SCORES = Embedded(1, tuple(array("f", [score]).tobytes() for score in (1, 9, -3, 1, 4)), 1)


def ranked(**fields: Any) -> Any:
    return rerank_document(parse_rerank(BODY | fields), SCORES, "m", 30)


def test_best_first_and_equals_in_their_order() -> None:
    document = ranked()
    assert [each["index"] for each in document["results"]] == [1, 4, 0, 3, 2]
    assert document["results"][0] == {"index": 1, "relevance_score": 9.0}
    assert document["usage"] == {"prompt_tokens": 30, "total_tokens": 30}
    assert (document["model"], document["object"]) == ("m", "list")


@pytest.mark.parametrize(("top_n", "count"), [(2, 2), (5, 5), (99, 5)])
def test_the_best_so_many(top_n: int, count: int) -> None:
    assert [each["index"] for each in ranked(top_n=top_n)["results"]] == [1, 4, 0, 3, 2][:count]


def test_documents_come_back_on_request() -> None:
    assert ranked(return_documents=True, top_n=1)["results"] == [
        {"index": 1, "relevance_score": 9.0, "document": {"text": "b"}}
    ]


def test_teis_dialect() -> None:
    body = {"query": "q", "texts": ["a", "b", "c", "d", "e"]}
    assert rerank_document(parse_rerank(body), SCORES, "m", 30)[0] == {"index": 1, "score": 9.0}
    told = rerank_document(parse_rerank(body | {"return_text": True, "top_n": 1}), SCORES, "m", 30)
    assert told == [{"index": 1, "score": 9.0, "text": "b"}]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"query": None}, "query"),
        ({"query": ""}, "query"),
        ({"query": ["q"]}, "query"),
        ({"documents": None}, "documents"),
        ({"documents": []}, "documents"),
        ({"documents": None, "texts": []}, "texts"),
        ({"documents": "a"}, "documents"),
        ({"documents": ["a", 5]}, "documents[1]"),
        ({"documents": [{"title": "a"}]}, "documents[0]"),
        ({"documents": ["a"] * (DOCUMENTS_MAX + 1)}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"keep_alive": -1}, "keep_alive"),
        ({"top_n": "2"}, "top_n"),
        ({"return_documents": "yes"}, "return_documents"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_rerank(BODY | change)
    assert caught.value.details["param"] == param


def test_a_pair_has_its_marks_around_and_between() -> None:
    form = PairForm(before=(1,), between=(2, 3), after=(4,))
    found = pair_tokens(form, "q", ["ab", ""], ByteVocabulary())
    assert found == [(1, ord("q"), 2, 3, ord("a"), ord("b"), 4), (1, ord("q"), 2, 3, 4)]


def test_a_models_own_template_for_pairs() -> None:
    form = PairForm(template="<{query}|{document}>")
    (found,) = pair_tokens(form, "q {document}", ["{query}"], ByteVocabulary())
    assert bytes(found) == b"<q {document}|{query}>"
