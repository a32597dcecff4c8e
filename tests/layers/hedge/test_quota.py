"""The quota of extra calls: pure arithmetic."""

from __future__ import annotations

from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.hedge.quota import MAX_SAVED_CALLS, HedgeQuota


@settings(max_examples=50)
@given(
    share=st.floats(1e-6, 3.0),
    calls=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.booleans()), max_size=60),
)
def test_extra_calls_never_exceed_the_share_of_all_calls_and_one(
    share: float, calls: list[tuple[int, int, bool]]
) -> None:
    """Repeatedly some calls, then some extra calls, of which one may be refunded."""
    extra, spent = HedgeQuota(share), 0
    for made, late, returns in calls:
        extra.calls += made
        for _ in range(late):
            spent += extra.spend()
            assert spent <= share * extra.calls + 1 + 1e-6
        if returns and spent:
            extra.refund()
            spent -= 1


@settings(max_examples=50)
@given(share=st.floats(0.001, 1.0))
def test_spending_at_every_call_uses_the_whole_share(share: float) -> None:
    extra, spent = HedgeQuota(share), 0
    for calls in range(1, 200):
        extra.calls += 1
        while extra.spend():
            spent += 1
        assert spent == floor(share * calls + 1 + 1e-9)


@pytest.mark.parametrize("share", [0.01, 0.1, 2.0])
def test_the_saved_quota_is_bounded(share: float) -> None:
    """After many calls without an extra one, as many extra calls as possible."""
    extra = HedgeQuota(share)
    extra.calls = 1_000_000
    spent = 0
    while extra.spend():
        spent += 1
    assert spent == floor(MAX_SAVED_CALLS * share + 1 + 1e-9)
    extra.calls += 100
    while extra.spend():
        spent += 1
    assert spent == floor((MAX_SAVED_CALLS + 100) * share + 1 + 1e-9)


def test_without_a_share_there_is_no_limit() -> None:
    extra = HedgeQuota(None)
    assert all(extra.spend() for _ in range(1000))


def test_a_refund_may_be_spent_again() -> None:
    extra = HedgeQuota(0.01)
    assert [extra.spend(), extra.spend()] == [True, False]
    extra.refund()
    assert [extra.spend(), extra.spend()] == [True, False]


@pytest.mark.parametrize(("before", "after"), [(0.5, 0.1), (0.1, 0.5), (None, 0.1), (0.1, None)])
def test_another_share_leaves_the_extra_calls_that_may_be_made_now(
    before: float | None, after: float | None
) -> None:
    extra = HedgeQuota(before)
    for _ in range(1000):
        extra.calls += 1
        if extra._share is not None:
            while extra.spend():
                pass
    extra.reconfigure(after)
    if after is None:
        assert extra.spend()
        return
    assert [extra.spend() for _ in range(3)] == ([True, False, False] if before is None else [False] * 3)
    extra.calls += 10
    spent = 0
    while extra.spend():
        spent += 1
    assert spent == 10 * after
