"""`Throttle`: its options, repr and error, and its description and lint in a pipeline."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from math import nan
from typing import Any

import pytest

from redouble import Fallback, Retry, Throttle, Timeout, errors
from tests.support.fakes import Boom, Draws, always
from tests.support.layers.limits.throttles import fails, with_history


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"k": 0.9}, ValueError, "Throttle k=0.9: write 1 or more, such as 2"),
        ({"k": nan}, ValueError, "Throttle k=nan"),
        ({"k": "2"}, TypeError, "Throttle k='2'"),
        ({"k": True}, TypeError, "Throttle k=True"),
        ({"k": fails}, TypeError, r"write @Throttle\(\), with brackets"),
        ({"window": 0}, ValueError, "Throttle window=0: write more seconds, such as 120"),
        ({"window": timedelta(0)}, ValueError, "Throttle window="),
        ({"window": "2m"}, TypeError, "Throttle window='2m'"),
        ({"most": 1.1}, ValueError, "Throttle most=1.1: write a share from 0 to 1"),
        ({"most": -0.1}, ValueError, "Throttle most=-0.1"),
        ({"minimum": -1}, ValueError, "Throttle minimum=-1: write how many calls, 0 or more"),
        ({"minimum": 1.5}, TypeError, "Throttle minimum=1.5"),
        ({"on": []}, ValueError, r"Throttle on=\[\] is empty"),
        ({"on": 120}, TypeError, "Throttle on=120"),
        ({"name": 3}, TypeError, "Throttle name=3"),
        ({"random": 0.5}, TypeError, "random=0.5"),
    ],
)
def test_wrong_options_are_reported(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Throttle(**options)


def test_its_repr_and_that_it_is_never_copied() -> None:
    assert repr(Throttle()) == "Throttle(2, window=120)"
    named = Throttle(1.1, timedelta(seconds=30), name="db")
    assert repr(named) == "Throttle(1.1, window=30, name='db')"
    assert copy.copy(named) is copy.deepcopy(named) is named
    with pytest.raises(TypeError, match="a Throttle is shared by the calls of one process"):
        pickle.dumps(named)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "the throttle is on: 75% of the calls are rejected here, because the service accepts too few"),
        (
            "db",
            "the throttle db is on: 75% of the calls are rejected here, because the service accepts too few",
        ),
    ],
)
def test_the_error_of_a_rejected_call(name: str | None, message: str) -> None:
    throttle = with_history(Throttle(name=name, random=Draws(0.0)), 0, 3)
    with pytest.raises(errors.Rejected) as caught:
        throttle.admit(0.0)
    assert (str(caught.value), caught.value.retry_after) == (message, None)
    assert type(caught.value) is errors.Rejected


def test_its_description_and_lint_in_a_pipeline() -> None:
    pipeline = Timeout(9) | Retry() | Throttle(1.5, 60) | Timeout(1)
    assert "at most 1.5 calls for each one accepted in 60 s" in pipeline.explain()
    assert "Throttle" not in "".join(pipeline.check())
    wrong = [text for text in (Throttle() | Retry()).check() if "Throttle" in text]
    assert len(wrong) == 1
    assert wrong[0].startswith("Throttle outside Retry: it counts one call for several attempts")
    hidden = (Throttle(on=Boom) | Fallback(value=1)).check()
    assert ["Fallback inside Throttle" in text for text in hidden] == [True]
    assert (Throttle(on=always(True)) | Fallback(value=1, on=Boom)).check() == []
