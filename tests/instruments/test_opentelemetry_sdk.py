"""OpenTelemetry's global provider: a process can set it only once, so each test runs its own process."""

from __future__ import annotations

import subprocess
import sys

BEGIN = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from redouble import CircuitBreaker, Retry
from redouble._telemetry.observers import watch
from redouble.instruments import opentelemetry

reader, breaker = InMemoryMetricReader(), CircuitBreaker(name="pay")

def shown():
    resources = reader.get_metrics_data().resource_metrics
    found = {m.name: m.data.data_points for r in resources for s in r.scope_metrics for m in s.metrics}
    calls = found["redouble.calls"][0].value if "redouble.calls" in found else 0
    return calls, "redouble.breaker.state" in found
"""


def fresh(code: str, begin: str = BEGIN) -> list[str]:
    """Run code in its own interpreter, and return the lines it printed."""
    command = [sys.executable, "-I", "-W", "error", "-c", begin + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own code
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


def test_an_sdk_that_is_set_later_is_used() -> None:
    """The same holds after instrumentation is removed and added again."""
    code = """
retried = Retry(name="work")(lambda: None)
handle = opentelemetry.instrument()
retried()
print(watch.wants_successes())
metrics.set_meter_provider(MeterProvider([reader]))
print(watch.wants_successes())
retried()
print(*shown())
handle.remove()
retried()
with opentelemetry.instrument():
    retried()
    print(*shown())
with opentelemetry.instrument(metrics.get_meter_provider()):
    retried()
    print(*shown())
"""
    assert fresh(code) == ["False", "True", "1 True", "2 True", "3 True"]


def test_an_sdk_that_was_set_before_is_used() -> None:
    code = """
metrics.set_meter_provider(MeterProvider([reader]))
for _ in range(2):
    with opentelemetry.instrument():
        print(watch.wants_successes())
        Retry(name="work").call(int)
        print(*shown())
"""
    assert fresh(code) == ["True", "1 True", "True", "2 True"]


def test_without_an_sdk_the_api_is_enough() -> None:
    """Although the SDK is installed, it is not imported."""
    code = """
import sys
from redouble import Retry
from redouble.instruments import opentelemetry
with opentelemetry.instrument():
    print(Retry(attempts=1).run(lambda: 1 / 0).ok, Retry().call(int))
print(*[name for name in sys.modules if name.startswith("opentelemetry.sdk")])
"""
    assert fresh(code, begin="") == ["False 0", ""]
