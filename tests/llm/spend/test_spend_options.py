"""The options of a `Spend` and its amounts: an error names the wrong one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest

from redouble.llm import Spend
from tests.support.llm.spends import spent

WHOLE = "a whole number, more than 0, or None for no limit"
MONEY = "a number, more than 0, or None for no limit"
SHARE = "a share above 0, up to 1, such as 0.8, or None for no warning"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"tokens": 0}, ValueError, f"Spend tokens=0: write {WHOLE}"),
        ({"tokens": -1}, ValueError, f"Spend tokens=-1: write {WHOLE}"),
        ({"tokens": True}, TypeError, f"Spend tokens=True: write {WHOLE}"),
        ({"tokens": 10.0}, TypeError, f"Spend tokens=10.0: write {WHOLE}"),
        ({"tokens": "10"}, TypeError, f"Spend tokens='10': write {WHOLE}"),
        ({"requests": 0}, ValueError, f"Spend requests=0: write {WHOLE}"),
        ({"requests": False}, TypeError, f"Spend requests=False: write {WHOLE}"),
        ({"cost": 0}, ValueError, f"Spend cost=0: write {MONEY}"),
        ({"cost": Decimal(0)}, ValueError, f"Spend cost=Decimal('0'): write {MONEY}"),
        ({"cost": -0.5}, ValueError, f"Spend cost=-0.5: write {MONEY}"),
        ({"cost": nan}, ValueError, f"Spend cost=nan: write {MONEY}"),
        ({"cost": inf}, ValueError, f"Spend cost=inf: write {MONEY}"),
        ({"cost": Decimal("nan")}, ValueError, f"Spend cost=Decimal('NaN'): write {MONEY}"),
        ({"cost": Decimal("snan")}, ValueError, f"Spend cost=Decimal('sNaN'): write {MONEY}"),
        ({"cost": Decimal("inf")}, ValueError, f"Spend cost=Decimal('Infinity'): write {MONEY}"),
        ({"cost": Decimal("1e999999")}, ValueError, f"Spend cost=Decimal('1E+999999'): write {MONEY}"),
        ({"cost": True}, TypeError, f"Spend cost=True: write {MONEY}"),
        ({"cost": "1.50"}, TypeError, f"Spend cost='1.50': write {MONEY}"),
        ({"tokens": 9, "per": 0}, ValueError, "Spend per=0: write more seconds, such as 60, or None for"),
        ({"tokens": 9, "per": -1}, ValueError, "Spend per=-1: write a finite number of seconds"),
        ({"tokens": 9, "per": nan}, ValueError, "Spend per=nan: write a finite number of seconds"),
        ({"tokens": 9, "per": "60s"}, TypeError, "Spend per='60s': write seconds as a number"),
        ({"tokens": 9, "warn_at": 0}, ValueError, f"Spend warn_at=0: write {SHARE}"),
        ({"tokens": 9, "warn_at": 1.1}, ValueError, f"Spend warn_at=1.1: write {SHARE}"),
        ({"tokens": 9, "warn_at": True}, TypeError, f"Spend warn_at=True: write {SHARE}"),
        ({"tokens": 9, "name": 3}, TypeError, "Spend name=3: write a text, or None"),
    ],
)
def test_a_wrong_option_raises_with_its_name(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match="^" + re.escape(message)):
        Spend(**options)


AMOUNT = "0 or more: release() returns what was reserved"


@pytest.mark.parametrize("method", ["reserve", "more", "commit"])
@pytest.mark.parametrize(
    ("amounts", "kind", "message"),
    [
        ({"tokens": -5}, ValueError, f"tokens=-5: write a whole number, {AMOUNT}"),
        ({"tokens": False}, TypeError, f"tokens=False: write a whole number, {AMOUNT}"),
        ({"tokens": 1.5}, TypeError, f"tokens=1.5: write a whole number, {AMOUNT}"),
        ({"cost": -0.1}, ValueError, f"cost=-0.1: write a number, {AMOUNT}"),
        ({"cost": nan}, ValueError, f"cost=nan: write a number, {AMOUNT}"),
        ({"cost": False}, TypeError, f"cost=False: write a number, {AMOUNT}"),
        ({"cost": "0.1"}, TypeError, f"cost='0.1': write a number, {AMOUNT}"),
    ],
)
def test_a_wrong_amount_raises_and_changes_nothing(
    method: str, amounts: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """Amounts are validated even if the `Spend` does not limit them."""
    spend = Spend(requests=10)
    reservation = spend.reserve()
    use: Callable[..., object] = getattr(spend if method == "reserve" else reservation, method)
    with pytest.raises(kind, match="^" + re.escape(f"{method} {message}")):
        use(**amounts)
    assert (spend.snapshot()["requests"], spend.snapshot()["requests_reserved"]) == (0, 1)


def test_a_negative_number_of_requests_raises() -> None:
    with pytest.raises(ValueError, match=r"^reserve requests=-1: write a whole number, 0 or more"):
        Spend(requests=3).reserve(requests=-1)


def test_repr_and_attributes_are_the_options() -> None:
    spend = Spend(tokens=1000, cost=Decimal("2.50"), requests=3, per=timedelta(minutes=1), name="chat")
    text = "Spend(tokens=1000, cost=2.50, requests=3, per=60.0, warn_at=0.8, name='chat')"
    spent(spend, 10)
    assert repr(spend) == text
    assert repr(Spend(cost=0.1, warn_at=None)) == "Spend(cost=0.1, warn_at=None)"
    assert (spend.tokens, spend.cost, spend.requests, spend.per) == (1000, Decimal("2.50"), 3, 60)
    assert (spend.warn_at, spend.name) == (0.8, "chat")
