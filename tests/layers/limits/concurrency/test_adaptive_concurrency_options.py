"""`AdaptiveConcurrency`: its options, repr and snapshot, and its description and lint in a pipeline."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

from redouble import AdaptiveConcurrency, Fallback, Retry, Timeout
from tests.support.fakes import Boom

# ------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"initial": 0},
            ValueError,
            "AdaptiveConcurrency initial=0: write how many calls at once, 1 or more",
        ),
        ({"initial": 2.0}, TypeError, "AdaptiveConcurrency initial=2.0"),
        ({"initial": True}, TypeError, "AdaptiveConcurrency initial=True"),
        ({"initial": print}, TypeError, r"write @AdaptiveConcurrency\(\), with brackets"),
        ({"least": 0}, ValueError, "AdaptiveConcurrency least=0"),
        ({"least": None}, TypeError, "AdaptiveConcurrency least=None"),
        ({"most": 0}, ValueError, "AdaptiveConcurrency most=0"),
        ({"most": inf}, TypeError, "AdaptiveConcurrency most=inf"),
        ({"least": 21}, ValueError, "write least <= initial <= most"),
        ({"most": 19}, ValueError, "'least': 1, 'initial': 20, 'most': 19.: write least <= initial <= most"),
        ({"by": "latency"}, ValueError, "by='latency': write 'gradient', 'vegas' or 'aimd'"),
        ({"by": None}, ValueError, "by=None: write 'gradient'"),
        ({"window": 0}, ValueError, "'window': 0.0.*: write more than 0 seconds"),
        ({"window": "1s"}, TypeError, "AdaptiveConcurrency window='1s'"),
        ({"slow": 0}, ValueError, "'slow': 0.0.*: write more than 0 seconds"),
        ({"slow": -1}, ValueError, "AdaptiveConcurrency slow=-1"),
        ({"relearn": timedelta(0)}, ValueError, "'relearn': 0.0.*: write more than 0 seconds"),
        ({"relearn": nan}, ValueError, "AdaptiveConcurrency relearn=nan"),
        ({"on": ()}, ValueError, r"AdaptiveConcurrency on=\(\) is empty"),
        ({"on": 5}, TypeError, "AdaptiveConcurrency on=5"),
        ({"on": KeyboardInterrupt}, ValueError, "on=KeyboardInterrupt is never"),
        ({"name": 3}, TypeError, "AdaptiveConcurrency name=3"),
        ({"random": 0.5}, TypeError, "random=0.5"),
    ],
)
def test_wrong_options_are_reported(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        AdaptiveConcurrency(**options)


def test_its_repr_and_snapshot() -> None:
    gate = AdaptiveConcurrency()
    assert repr(gate) == "AdaptiveConcurrency(by='gradient', limit=20)"
    assert (gate.limit, gate.snapshot()) == (20, {"limit": 20, "in_use": 0})
    named = AdaptiveConcurrency(5, 2, 7, "aimd", timedelta(seconds=2), Boom, slow=1, relearn=9, name="db")
    assert repr(named) == "AdaptiveConcurrency(by='aimd', limit=5, name='db')"
    with named, named:
        assert named.snapshot() == {"limit": 5, "in_use": 2}


def test_it_is_shared_and_never_copied() -> None:
    gate = AdaptiveConcurrency()
    assert copy.copy(gate) is copy.deepcopy(gate) is gate
    with pytest.raises(TypeError, match=r"an? AdaptiveConcurrency is shared by the calls of one process"):
        pickle.dumps(gate)


@pytest.mark.parametrize("by", ["gradient", "aimd"])
def test_its_description_and_lint_in_a_pipeline(by: Any) -> None:
    gate = AdaptiveConcurrency(7, by=by)
    pipeline = Timeout(9) | Retry() | gate | Timeout(1)
    assert "as many at once as the service can handle, currently 7" in pipeline.explain()
    assert "AdaptiveConcurrency" not in "".join(pipeline.check())
    wrong = [text for text in (gate | Retry()).check() if "AdaptiveConcurrency" in text]
    assert len(wrong) == 1
    assert wrong[0].startswith("AdaptiveConcurrency outside Retry: it mistakes the delays between attempts")


@pytest.mark.parametrize(("on", "objects"), [(Boom, True), (Exception, True), (KeyError, False)])
def test_a_fallback_inside_that_hides_overload_errors_is_reported(on: type[Exception], objects: bool) -> None:
    problems = (AdaptiveConcurrency(by="aimd", on=Boom) | Fallback(value=1, on=on)).check()
    assert ["Fallback inside AdaptiveConcurrency" in text for text in problems] == [True] * objects
