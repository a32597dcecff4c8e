"""The types of instruments and configuration, checked by two type checkers and at run time."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, assert_type

import pytest
from prometheus_client import CollectorRegistry

from redouble import Attempt, Outcome, Pipeline, Retry, bind, config, observe, policies, stats
from redouble.config import Config, Named, Reload
from redouble.config import _reload as _live
from redouble.errors import ConfigError
from redouble.instruments import METRICS, Metric, logging, memory, opentelemetry, prometheus, structlog
from redouble.types import Binding, Event, Observation

pytestmark = pytest.mark.one_python


def fetch(url: str, *, chunk: int = 1) -> bytes:
    return url.encode() * chunk


async def afetch(url: str) -> bytes:
    return url.encode()


def log(event: Event) -> None: ...


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live, "LIVE", _live.ConfigStore())
    config.load({"policies": {"payments": {"attempts": 2}}}, environ={})


def test_observing() -> None:
    with observe(log, only=("retry", "give_up")) as handle:
        assert_type(handle, Observation)
    with pytest.raises(ValueError, match="only='retried'"):
        observe(log, only=["retried"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_binding() -> None:
    with bind(run_id="r", tenant=3, shadow=True, share=0.5, gone=None) as handle:
        assert_type(handle, Binding)
    with pytest.raises(TypeError):
        bind(run_id=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        bind("run")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_instruments() -> None:
    assert_type(METRICS[0], Metric)
    with logging.instrument("app") as handle, structlog.instrument(), opentelemetry.instrument():
        assert_type(handle, Observation)
    with prometheus.instrument(CollectorRegistry(), labels=["team"], buckets=[1, 2]) as handle:
        assert_type(handle, Observation)
    with memory.instrument() as metrics:
        assert_type(metrics, memory.Metrics)
        assert_type(metrics.counter("calls", name="x"), float)
        assert_type(metrics.histogram("delay"), memory.Summary)
        assert_type(metrics.histogram("delay").most, float)
        assert_type(metrics.gauge("budget_tokens"), float)
    assert_type(stats(), dict[str, dict[str, dict[str, Any]]])


def test_wrong_instruments() -> None:
    with pytest.raises(TypeError):
        logging.instrument(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        prometheus.instrument("registry")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        opentelemetry.instrument("sdk")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_configuration() -> None:
    made = config.from_mapping(
        {"policies": {"a": {"attempts": 2}}}, environ={"REDOUBLE_POLICIES__A__ATTEMPTS": "3"}
    )
    assert_type(made, Config)
    assert_type(made.policies, Mapping[str, Retry])
    assert_type(made.pipelines, Mapping[str, Pipeline])
    assert_type(made.named("a"), Retry | Pipeline)
    assert_type(config.policy({"timeout": "2s"}), Retry)
    assert_type(config.to_mapping(Retry(attempts=2)), dict[str, object])
    assert_type(config.from_qubit({"max_attempts": 3}), Retry)
    assert_type(config.schema(), dict[str, object])
    assert_type(config.reload(), Reload)
    assert_type(config.reload().error, ConfigError | None)
    with pytest.raises(ConfigError):
        config.policy(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_named_policies() -> None:
    payments = policies("payments")
    assert_type(payments, Named)
    assert_type(payments.current, Retry | Pipeline)
    assert_type(payments.call(fetch, "a", chunk=2), bytes)
    assert_type(payments.run(fetch, "a"), Outcome[bytes])
    running = payments.run(afetch, "a")
    checked = assert_type(running, Coroutine[Any, Any, Outcome[bytes]])
    checked.close()
    assert_type(iter(payments), Iterator[Attempt])
    decorated = payments(fetch)
    assert_type(decorated("a", chunk=3), bytes)
    with pytest.raises(AttributeError):
        decorated(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(payments | Retry(), Pipeline)
    with pytest.raises(TypeError):
        policies(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
