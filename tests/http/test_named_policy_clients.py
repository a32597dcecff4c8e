"""Clients whose policy is given by name: they follow configuration reloads and keep their own state."""

from __future__ import annotations

import pytest

from redouble import Keyed, Timeout, config, policies
from redouble._clients.idempotency_key import Idempotency
from redouble.config import _reload
from redouble.errors import ConfigError
from redouble.http._plan import HttpPlan
from tests.support.http.offline_clients import OfflineSender, Request


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reload, "LIVE", _reload.ConfigStore())


def send(exchange: object) -> object:
    return exchange


async def asend(exchange: object) -> object:
    return exchange


def client_of(name: str = "payments", *, aio: bool = False) -> OfflineSender:
    return OfflineSender(policies(name), Idempotency("auto"), asend if aio else send, aio=aio)


def attempts(client: OfflineSender) -> int | None:
    return attempts_of(client._binding.current)


def attempts_of(plan: HttpPlan) -> int | None:
    assert plan.outermost is not None
    return plan.outermost.attempts


def load(**options: object) -> None:
    config.load({"policies": {"payments": options}}, environ=None)


@pytest.mark.parametrize("aio", [False, True])
def test_a_client_follows_a_reload(aio: bool) -> None:
    load(attempts=2)
    client = client_of(aio=aio)
    before = client._binding.current
    assert attempts_of(before) == 2
    assert client._binding.current is before
    load(attempts=5)
    assert attempts(client) == 5
    assert attempts_of(before) == 2  # a call in flight keeps its policy


def test_a_client_may_be_created_before_a_configuration_is_loaded() -> None:
    client = client_of()
    with pytest.raises(ConfigError, match="no configuration is loaded yet"):
        attempts(client)
    load(attempts=3)
    assert attempts(client) == 3


def test_a_client_keeps_its_keys() -> None:
    load(attempts=2)
    client, request = client_of(), Request("POST")
    given = client.begin_exchange(request).key
    load(attempts=3)
    assert client.begin_exchange(request).key is given


def test_a_configuration_that_a_client_cannot_use_is_refused() -> None:
    load(attempts=2)
    client = client_of()
    hedged = {"pipelines": {"payments": {"layers": [{"type": "hedge", "delay": 1}]}}}
    with pytest.raises(ConfigError, match=r"cannot be applied to redouble\.client, which uses it"):
        config.load(hedged, environ=None)
    assert attempts(client) == 2


def test_a_name_inside_a_pipeline_is_refused() -> None:
    load(attempts=2)
    with pytest.raises(TypeError, match="name the whole pipeline in the configuration"):
        OfflineSender(Timeout(1) | policies("payments"), None, send, aio=False)


def test_a_name_inside_a_keyed_layer_is_refused() -> None:
    """A client follows one name, and would not follow this one."""
    load(attempts=2)
    with pytest.raises(TypeError, match="name the whole pipeline in the configuration"):
        OfflineSender(Keyed(id, lambda: policies("payments")), None, send, aio=False)
