"""The engine on recurrent models, whose memory is a state that cannot be cut: never a wrong answer for a prefix."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.live import Live, live
from tests.model.generated import generated

pytestmark = pytest.mark.model

STORY = "The little dog was in the house and it was on the way to the city with the people. " * 4


@pytest.fixture(scope="module", params=["mamba", "jamba"])
def recurrent(request: pytest.FixtureRequest) -> Iterator[Live]:
    with live(generated(request.param), n_ctx=1024, n_parallel=3, n_ubatch=64, n_batch=64) as engine:
        yield engine


def test_several_answers_to_one_prompt(recurrent: Live) -> None:
    alone, _ = recurrent.ask(STORY, 10, cache_prompt=False)
    first = recurrent.last_id + 1
    ids = [recurrent.submit(STORY, 10, family=first) for _ in range(5)]
    recurrent.wait(*ids)
    assert {recurrent.texts[id] for id in ids} == {alone}
    n_prompt = len(recurrent.engine.tokenize(STORY))
    assert [recurrent.finished(id).timings.cached_tokens for id in ids[1:3]] == [n_prompt] * 2


def test_a_conversation_goes_on_and_a_prompt_that_parts_is_evaluated_anew(recurrent: Live) -> None:
    recurrent.settle()
    begun = recurrent.engine.tokenize(STORY)
    recurrent.ask(begun, 0)
    longer = [*begun, *begun[:30]]
    continued, end = recurrent.ask(longer, 10)
    assert end.timings.cached_tokens == len(begun)
    fresh, _ = recurrent.ask(longer, 10, cache_prompt=False)
    assert continued == fresh

    parted = [*begun[: len(begun) // 2], *begun[:9]]
    again, _ = recurrent.ask(parted, 10)
    fresh, _ = recurrent.ask(parted, 10, cache_prompt=False)
    assert again == fresh
