"""Drafts from what has been said before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.draft_lookup import HashedNgrams, History, LearningNgrams, Ngrams
from llamad.engine.drafting import HashSettings, NgramSettings, Wish


def wish(tokens: list[int], n_max: int = 8, task: int = 1, slot: int = 0, n_shifts: int = 0) -> Wish:
    return Wish(slot, task, tokens, n_max, n_shifts=n_shifts)


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


@pytest.mark.parametrize(
    ("said", "n", "hits", "n_max", "draft"),
    [
        ("one two one t", 3, 1, 4, "wo o"),
        ("one two one t", 3, 2, 4, ""),
        ("xab1 xab2 xab", 3, 1, 2, "2 "),
        ("xab1 xab2 xab", 3, 2, 2, "2 "),
        ("xab1 xab2 xab", 3, 3, 2, ""),
        ("abababa", 3, 1, 6, "bababa"),
        ("aaaa", 3, 1, 5, "aaaaa"),
        ("abcdabc", 4, 1, 5, ""),
        ("ab", 3, 1, 5, ""),
        ("aa", 2, 1, 5, ""),
        ("aaa", 2, 1, 3, "aaa"),
        ("", 1, 1, 5, ""),
        ("one two one t", 3, 1, 0, ""),
    ],
)
def test_what_followed_the_last_time(said: str, n: int, hits: int, n_max: int, draft: str) -> None:
    drafter = Ngrams(NgramSettings(n, 48, hits))
    assert drafter.draft([wish(letters(said), n_max)]) == [letters(draft)]


def test_no_draft_is_longer_than_the_settings_say() -> None:
    assert Ngrams(NgramSettings(2, 3)).draft([wish([1, 2, 3, 4, 5, 6, 1, 2], 9)]) == [[3, 4, 5]]


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 5), st.integers(1, 3))
def test_the_search_is_the_plain_one(tokens: list[int], n: int, hits: int) -> None:
    history = History()
    history.follow(tokens)
    places = [
        end for end in range(n, len(tokens)) if len(tokens) > n and tokens[end - n : end] == tokens[-n:]
    ]
    assert history.find_last(n, hits) == (places[-1] if len(places) >= hits else None)


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=3000), max_size=5))
def test_a_history_follows_what_grows(parts: list[list[int]]) -> None:
    history, tokens = History(), list[int]()
    for part in parts:
        tokens += part
        history.follow(tokens)
        assert history.ids.tolist() == tokens


def test_each_slot_has_a_history_and_a_new_task_a_new_one() -> None:
    drafter = Ngrams(NgramSettings(2, 4))
    one, two = [1, 2, 3, 1, 2], [7, 8, 9, 7, 8]
    assert drafter.draft([wish(one), wish(two, task=2, slot=1)]) == [[3, 1, 2, 3], [9, 7, 8, 9]]
    one += [4, 1, 2]
    assert drafter.draft([wish(one, 2)]) == [[4, 1]]
    assert drafter.draft([wish([3, 1, 2, 5, 6, 7, 8, 1, 2], 2, task=3)]) == [[5, 6]]
    # A token was taken out, and others came.
    assert drafter.draft([wish([3, 1, 2, 6, 7, 8, 1, 2, 4, 1, 2], 2, task=3, n_shifts=1)]) == [[4, 1]]


def test_an_n_gram_is_believed_as_far_as_it_came_true() -> None:
    drafter = LearningNgrams(NgramSettings(2, 8))
    said = [1, 2, 3, 4, 5, 6, 1, 2]
    assert drafter.draft([wish(said, 5)]) == [[3, 4, 5, 6, 1]]
    drafter.judge(1, 5, 2)
    assert drafter.draft([wish(said, 5)]) == [[3, 4]]
    drafter.judge(1, 2, 2)
    assert drafter.draft([wish(said, 5)]) == [[3, 4]]
    drafter.judge(1, 2, 0)
    assert drafter.draft([wish(said, 5)]) == [[]]
    # Only the first of it was evaluated, and that was right.
    other = [8, 9, 3, 4, 5, 8, 9]
    assert drafter.draft([wish(other, 3, task=2)]) == [[3, 4, 5]]
    drafter.judge(2, 1, 1)
    assert drafter.draft([wish(other, 3, task=2)]) == [[3, 4, 5]]


def test_what_one_sequence_has_said_helps_another() -> None:
    drafter = HashedNgrams(HashSettings(n_match=3, n_min=2, n_max=5), size=1 << 16)
    assert drafter.draft([wish([1, 2, 3, 4, 5, 6, 7])]) == [[]]
    assert drafter.draft([wish([9, 1, 2, 3], task=2, slot=1)]) == [[4, 5, 6, 7]]
    assert drafter.draft([wish([9, 1, 2, 3], 2, task=2, slot=1)]) == [[4, 5]]
    assert drafter.draft([wish([9, 4, 5, 6], task=3, slot=1)]) == [[]], "one token is less than n_min"
    assert drafter.draft([wish([4, 5, 6], 1, task=4, slot=2)]) == [[7]], "but as many as wanted"


def test_a_table_of_hashes_learns_what_comes_token_by_token() -> None:
    drafter = HashedNgrams(HashSettings(2, 1, 9), size=1 << 12)
    tokens = list[int]()
    for token in [5, 6, 7, 8, 5, 6]:
        tokens.append(token)
        (draft,) = drafter.draft([wish(tokens)])
    assert draft[:4] == [7, 8, 5, 6]


@given(st.lists(st.integers(0, 300_000), max_size=80), st.integers(1, 20))
def test_any_tokens_can_be_looked_up(tokens: list[int], n_max: int) -> None:
    for drafter in (
        Ngrams(NgramSettings(2, 9)),
        LearningNgrams(NgramSettings(2, 9)),
        HashedNgrams(HashSettings(2, 0, 9), size=64),
    ):
        (draft,) = drafter.draft([wish(tokens, n_max)])
        assert len(draft) <= min(n_max, 9)
        assert set(draft) <= set(tokens)


def test_a_table_of_hashes_goes_on_learning_where_tokens_were_taken_out() -> None:
    drafter = HashedNgrams(HashSettings(2, 1, 3), size=1 << 12)
    drafter.draft([wish(list(range(100, 140)))])
    drafter.draft([wish([1, 2, 3, 4, 5], n_shifts=1)])
    assert drafter.draft([wish([9, 1, 2], task=2, slot=1)]) == [[3, 4, 5]]
