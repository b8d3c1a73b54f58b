"""What each client may take."""

from __future__ import annotations

from llamad.core.quotas import Quota, Quotas


def quotas(**quota: int) -> Quotas:
    made = Quotas()
    made.configure({"k": Quota(**quota)}, 0.0)
    return made


def kinds(made: Quotas, now: float, count: int) -> list[str]:
    answers = [made.begin("k", now) for _ in range(count)]
    return [answer.kind if answer else "" for answer in answers]


def test_without_limits_everything_goes() -> None:
    assert kinds(quotas(), 0.0, 100) == [""] * 100
    assert Quotas().begin("unknown", 0.0) is None


def test_so_many_at_once() -> None:
    made = quotas(max_concurrent=2)
    assert kinds(made, 0.0, 3) == ["", "", "key-concurrency"]
    made.end("k")
    assert kinds(made, 0.0, 2) == ["", "key-concurrency"]
    for _ in range(5):
        made.end("k")
    assert kinds(made, 0.0, 3) == ["", "", "key-concurrency"]


def test_so_many_requests_a_minute() -> None:
    made = quotas(requests_per_minute=60)
    assert kinds(made, 0.0, 61) == [""] * 60 + ["key-requests"]
    refused = made.begin("k", 0.5)
    assert refused is not None
    assert (refused.status, refused.retry_after_s) == (429, 0.5)
    assert kinds(made, 1.0, 2) == ["", "key-requests"]
    assert kinds(made, 1000.0, 61) == [""] * 60 + ["key-requests"]


def test_a_refused_request_takes_nothing() -> None:
    made = quotas(max_concurrent=1, requests_per_minute=2)
    assert kinds(made, 0.0, 5) == ["", *["key-concurrency"] * 4]
    made.end("k")
    assert kinds(made, 0.0, 1) == [""]


def test_tokens_are_charged_afterwards_and_may_go_below_zero() -> None:
    made = quotas(tokens_per_minute=60)
    assert kinds(made, 0.0, 1) == [""]
    made.charge("k", 90, 0.0)
    refused = made.begin("k", 0.0)
    assert refused is not None
    assert (refused.kind, refused.retry_after_s) == ("key-tokens", 31.0)
    assert kinds(made, 30.9, 1) == ["key-tokens"]
    assert kinds(made, 31.0, 1) == [""]


def test_a_second_try_is_no_second_request() -> None:
    made = quotas(requests_per_minute=1, max_concurrent=1)
    assert made.begin("k", 0.0) is None
    made.end("k")
    assert made.begin("k", 0.0, again=True) is None
    assert made.begin("k", 0.0) is not None


def test_new_limits_keep_what_was_used() -> None:
    made = quotas(requests_per_minute=2, max_concurrent=3)
    assert kinds(made, 0.0, 2) == ["", ""]
    made.configure({"k": Quota(2, 2, 0), "new": Quota(requests_per_minute=1)}, 0.0)
    assert kinds(made, 0.0, 1) == ["key-concurrency"]
    made.end("k")
    assert kinds(made, 0.0, 1) == ["key-requests"]
    made.configure({"k": Quota(requests_per_minute=5)}, 0.0)
    assert kinds(made, 0.0, 6) == [""] * 5 + ["key-requests"]
    made.configure({}, 0.0)
    assert kinds(made, 0.0, 9) == [""] * 9


def test_a_clock_that_stands_still_gives_nothing() -> None:
    made = quotas(requests_per_minute=1)
    assert kinds(made, 5.0, 2) == ["", "key-requests"]
    assert kinds(made, 4.0, 1) == ["key-requests"]
