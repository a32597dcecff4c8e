"""smithy-kotlin's waiters: errors and results that count as the awaited success."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Kind, Reason, Retry, Verdict
from tests.conformance.flows import EVERY, NONE, answers, check, flow
from tests.support.scripted import Operation, Step, Virtual, fail, ok

ACCEPT = Verdict.accept()


def is_5(value: object) -> bool:
    return value == 5


def never(value: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("step", "options", "accepted"),
    [
        pytest.param(ok("value"), {}, True, id="KT-ACC-01.value"),
        pytest.param(fail("gone"), {"on": OSError}, False, id="KT-ACC-01.exception"),
        pytest.param(fail("gone"), {"on": answers({"*": ACCEPT})}, True, id="KT-ACC-01.wanted-exception"),
        pytest.param(ok("there"), {"until": never}, False, id="KT-ACC-01.unwanted-value"),
        pytest.param(fail("BadState"), {"on": answers({"BadState": ACCEPT})}, True, id="KT-ACC-02.code"),
        pytest.param(fail("BadArgument"), {"on": answers({"BadState": ACCEPT})}, False, id="KT-ACC-02.other"),
        pytest.param(ok(5), {"until": is_5}, True, id="KT-ACC-03.true"),
        pytest.param(ok(6), {"until": is_5}, False, id="KT-ACC-03.false"),
        pytest.param(fail("5"), {"until": is_5, "on": OSError}, False, id="KT-ACC-03.error"),
    ],
)
def test_errors_and_results_that_count_as_success(
    step: Step, options: dict[str, Any], accepted: bool
) -> None:
    """An exception may be a success, and a result may be a failure."""
    clock = Virtual()
    outcome = Retry(attempts=2, backoff=NONE, clock=clock, **options).run(Operation([step], clock))
    assert outcome.ok is accepted


@pytest.mark.parametrize("colour", EVERY)
@pytest.mark.parametrize(
    ("step", "options", "expected"),
    [
        pytest.param(
            fail("e"),
            {"on": [answers({"a": True}), answers({"b": True}), answers({"e": False})]},
            {"reason": Reason.stopped, "calls": 1},
            id="KT-ACC-04.third",
        ),
        pytest.param(
            ok("pending", verdict=Verdict.retry(kind=Kind.server)),
            {},
            {"reason": Reason.attempts, "calls": 2},
            id="KT-ACC-04.value",
        ),
        pytest.param(
            fail("e"), {"on": [answers({})]}, {"reason": Reason.stopped, "calls": 1}, id="KT-ACC-04.exception"
        ),
    ],
)
def test_the_first_matching_rule_decides(
    colour: str, step: Step, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    """If none matches, a result is retried, and an error is not."""
    check(colour, flow("KT-ACC-04", step, attempts=2, expected=expected, **options))
