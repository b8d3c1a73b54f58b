"""Plans for random needs: the promises of `plan`, `fair` and `halves`."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.plan import Need, Share, fair, halves, parts, plan

N_BATCH = 64


@st.composite
def needs(draw: st.DrawFn) -> list[Need]:
    result = []
    for slot in range(draw(st.integers(0, 16))):
        generating = draw(st.booleans())
        pending = 1 if generating else draw(st.integers(1, 200))
        tails = draw(st.sampled_from([(), (0, 0), (0, 1), (4, 0), (4, 1)]))
        result.append(Need(slot, draw(st.integers(0, 500)), pending, generating, tails))
    return result


@given(needs(), st.integers(16, N_BATCH), st.integers(1, N_BATCH))
def test_a_plan_keeps_its_promises(needs: list[Need], n_batch: int, beside: int) -> None:
    shares = plan(needs, n_batch, beside)
    by_slot = {need.slot: need for need in needs}
    assert len({share.slot for share in shares}) == len(shares)
    assert sum(share.count for share in shares) <= n_batch
    for share in shares:
        need = by_slot[share.slot]
        assert share.start == need.n_past
        assert 1 <= share.count <= need.wanted
        assert share.logits == (share.count == need.n_pending)

    generating = {need.slot for need in needs if need.generating}
    assert {share.slot for share in shares if share.slot in generating} == generating
    prompts = sum(share.count for share in shares if share.slot not in generating)
    room = n_batch - len(generating)
    if generating:
        room = min(room, beside)
    assert prompts == min(room, sum(need.wanted for need in needs if not need.generating))


@given(needs(), st.integers(1, 100))
def test_a_tail_shares_no_step_with_what_is_before_it(needs: list[Need], n_batch: int) -> None:
    by_slot = {need.slot: need for need in needs}
    for share in plan(needs, n_batch, n_batch):
        need = by_slot[share.slot]
        assert not any(need.n_pending - share.count < tail < need.n_pending for tail in need.tails)


def test_what_is_repeatable_ends_in_a_step_of_its_own_behind_a_checkpoint() -> None:
    pending, counts = 70, []
    while pending:
        (share,) = plan([Need(0, 70 - pending, pending, False, (4, 1))], N_BATCH, N_BATCH)
        counts.append(share.count)
        pending -= share.count
    assert counts == [64, 2, 3, 1]


@given(st.lists(st.integers(1, 50), max_size=12), st.integers(0, 200))
def test_fair_wastes_nothing_and_favours_nobody(wanted: list[int], room: int) -> None:
    parts = fair(wanted, room)
    assert sum(parts) == min(room, sum(wanted))
    assert all(0 <= part <= want for part, want in zip(parts, wanted, strict=True))
    unserved = [part for part, want in zip(parts, wanted, strict=True) if part < want]
    # Whoever got less than wanted got as much as anybody, but for the rounding.
    assert not unserved or max(parts) <= min(unserved) + 1


@given(st.lists(st.integers(1, 300), min_size=1, max_size=16), st.integers(1, 600))
def test_parts_waste_nothing_and_let_nobody_stand(wanted: list[int], room: int) -> None:
    counts = parts(wanted, room)
    assert sum(counts) == min(room, sum(wanted))
    assert all(0 <= count <= most for count, most in zip(counts, wanted, strict=True))
    assert all(counts) or room < 4 * len(wanted)


def test_prompts_that_are_alike_end_one_after_another() -> None:
    left, ended, steps = [45] * 7, [], 0
    while any(left):
        steps += 1
        left = [rest - count for rest, count in zip(left, parts(left, 128), strict=True)]
        ended += [steps] * (left.count(0) - len(ended))
    assert steps == 3
    assert ended[:3] == [1, 1, 2]


def test_streams_come_before_prompts_and_short_prompts_beside_long_ones() -> None:
    needs = [Need(0, 0, 1000, False), Need(1, 7, 1, True), Need(2, 0, 10, False)]
    assert plan(needs, 64, 64) == [Share(1, 7, 1, True), Share(0, 0, 53, False), Share(2, 0, 10, True)]


def test_prompts_beside_streams_are_bounded() -> None:
    needs = [Need(0, 0, 1000, False), Need(1, 7, 1, True)]
    assert plan(needs, 512, 128) == [Share(1, 7, 1, True), Share(0, 0, 128, False)]


def test_nothing_to_do() -> None:
    assert plan([], 64, 64) == []


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=8))
def test_halves_are_the_same_work(sizes: list[tuple[int, bool]]) -> None:
    shares = [Share(slot, 10, count, logits) for slot, (count, logits) in enumerate(sizes)]
    total = sum(share.count for share in shares)
    parts = halves(shares)
    if parts is None:
        assert total == 1
        return
    first, second = (sum(share.count for share in part) for part in parts)
    assert (first + second, first) == (total, total // 2)
    for share in shares:
        pieces = [piece for part in parts for piece in part if piece.slot == share.slot]
        assert sum(piece.count for piece in pieces) == share.count
        assert [piece.logits for piece in pieces] == [False] * (len(pieces) - 1) + [share.logits]
        assert pieces[0].start == share.start
        assert all(a.start + a.count == b.start for a, b in itertools.pairwise(pieces))
