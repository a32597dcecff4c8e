"""Prometheus in several processes, as under gunicorn: counters and gauges of live processes are added up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, multiprocess

WORKER = """
import os
from redouble import CircuitBreaker, Retry, TokenBucket
from redouble.instruments import prometheus

handle = prometheus.instrument(labels=["team"])
bucket, breaker = TokenBucket(5, name="bucket"), CircuitBreaker(name="pay")
left = [OSError(), OSError()]

def work():
    if left:
        raise left.pop()

retrying = Retry(on=OSError, backoff=[0, 0], name="work", labels={"team": "x"})
for _ in range(3):
    retrying.call(work)
print(os.getpid())
"""


def test_metrics_of_two_processes_are_added_up(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(  # noqa: S603  our own code
            [sys.executable, "-W", "error", "-c", WORKER],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    processes = [int(process.communicate()[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0]
    registry = CollectorRegistry()
    theirs: Any = multiprocess  # it has no type annotations
    theirs.MultiProcessCollector(registry, str(tmp_path))

    def value(sample: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"redouble_{sample}", labels)

    def counted() -> list[float | None]:
        return [
            value("calls_total", name="work", ok="true", team="x"),
            value("attempts_total", name="work", kind="unknown", result="failed", team="x"),
            value("retries_total", name="work", reason="unknown", team="x"),
            value("call_duration_seconds_count", name="work", team="x"),
            value("delay_seconds_bucket", name="work", le="0.001", team="x"),
        ]

    def shown() -> list[float | None]:
        return [
            value("budget_tokens", name="bucket"),
            value("breaker_state", name="pay", state="closed"),
            value("breaker_state", name="pay", state="open"),
        ]

    assert counted() == [6, 4, 4, 6, 4]
    assert shown() == [10, 2, 0]
    theirs.mark_process_dead(processes[0], str(tmp_path))
    assert counted() == [6, 4, 4, 6, 4]
    assert shown() == [5, 1, 0]
