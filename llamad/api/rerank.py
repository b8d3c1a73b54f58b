"""Reranking: how well documents answer a query. The dialects of Jina and Cohere (`documents`), and of TEI (`texts`)."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llamad.api.fields import Fields, wrong_field
from llamad.api.sampling import Vocabulary
from llamad.api.unsupported import refuse_unsupported
from llamad.engine.forms import PairForm
from llamad.engine.vocabulary import Embedded
from llamad.errors import RequestError

DOCUMENTS_MAX = 16_384
_PLACE = re.compile(r"\{query\}|\{document\}")


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """A parsed body. `field`: where the documents were. `tei`: the answer is TEI's. `with_text`: and repeats them."""

    query: str
    documents: tuple[str, ...]
    field: str
    model: str
    top_n: int
    tei: bool
    with_text: bool


def parse_rerank(document: dict[str, Any]) -> RerankRequest:
    """Raises RequestError that names the field."""
    fields = Fields(document)
    refuse_unsupported(fields)
    query = fields.text("query", "")
    if not query:
        raise fields.wrong("query", "a text", fields.raw("query"))
    tei = fields.raw("documents") is None and fields.raw("texts") is not None
    name = "texts" if tei else "documents"
    documents = fields.array(name)
    if not documents:
        raise fields.wrong(name, "an array of at least one text", documents)
    if len(documents) > DOCUMENTS_MAX:
        raise RequestError(
            f"cannot rank {len(documents)} documents in one request: at most {DOCUMENTS_MAX}",
            kind="too-many-inputs",
            details={"param": name},
        )
    return RerankRequest(
        query=query,
        documents=tuple(_text(f"{name}[{index}]", each) for index, each in enumerate(documents)),
        field=name,
        model=fields.text("model", ""),
        top_n=fields.integer("top_n", len(documents), 1, (1 << 31) - 1),
        tei=tei,
        with_text=fields.flag("return_text" if tei else "return_documents", False),
    )


def _text(where: str, value: object) -> str:
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise wrong_field(where, "a text, or an object with a text", value)
    return text


def pair_tokens(
    form: PairForm, query: str, documents: Sequence[str], vocabulary: Vocabulary
) -> list[tuple[int, ...]]:
    """The input for each document."""
    if form.template is not None:
        return [vocabulary.tokenize(_filled(form.template, query, each), False, True) for each in documents]
    # What is asked, and what is read, is never taken for control tokens.
    head = (*form.before, *vocabulary.tokenize(query, False, False), *form.between)
    return [(*head, *vocabulary.tokenize(each, False, False), *form.after) for each in documents]


def _filled(template: str, query: str, document: str) -> str:
    """In one go: what a text says about itself is not replaced."""
    texts = {"{query}": query, "{document}": document}
    return _PLACE.sub(lambda place: texts[place[0]], template)


def rerank_document(request: RerankRequest, answer: Embedded, model: str, n_tokens: int) -> Any:
    """The answer: the best `top_n`, best first, equals in the order of the request."""
    scores = [array("f", vector)[0] for vector in answer.vectors]
    best = sorted(range(len(scores)), key=lambda index: scores[index], reverse=True)[: request.top_n]
    if request.tei:
        return [
            {"index": index, "score": scores[index]}
            | ({"text": request.documents[index]} if request.with_text else {})
            for index in best
        ]
    return {
        "object": "list",
        "results": [
            {"index": index, "relevance_score": scores[index]}
            | ({"document": {"text": request.documents[index]}} if request.with_text else {})
            for index in best
        ],
        "model": model,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }
