"""Clients whose policy is given by name: they follow configuration reloads and keep their own state."""

from __future__ import annotations

import pytest

from redouble import Timeout, config, policies
from redouble._clients.idempotency_key import Idempotency
from redouble._clients.policy_binding import PolicyBinding
from redouble.config import _reload
from redouble.errors import ConfigError
from redouble.http._client import ClientPolicy, bind_policy
from redouble.http._request_body import RESENDABLE
from tests.support.http.offline_clients import Request


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reload, "LIVE", _reload.ConfigStore())


def send(exchange: object) -> object:
    return exchange


async def asend(exchange: object) -> object:
    return exchange


def binding(name: str = "payments", *, aio: bool = False) -> PolicyBinding[ClientPolicy]:
    return bind_policy("client", policies(name), Idempotency("auto"), asend if aio else send, aio=aio)


def load(**options: object) -> None:
    config.load({"policies": {"payments": options}}, environ=None)


@pytest.mark.parametrize("aio", [False, True])
def test_a_client_follows_a_reload(aio: bool) -> None:
    load(attempts=2)
    client = binding(aio=aio)
    before = client.current
    assert before.plan.max_attempts == 2
    assert client.current is before
    load(attempts=5)
    assert client.current.plan.max_attempts == 5
    assert before.plan.max_attempts == 2  # a call in flight keeps its policy


def test_a_client_may_be_created_before_a_configuration_is_loaded() -> None:
    client = binding()
    with pytest.raises(ConfigError, match="no configuration is loaded yet"):
        _ = client.current
    load(attempts=3)
    assert client.current.plan.max_attempts == 3


def test_a_client_stays_closed_and_keeps_its_keys() -> None:
    load(attempts=2)
    client, request = binding(), Request("POST")
    given = client.current.begin_exchange(request, RESENDABLE, "a").key
    client.current.close()
    load(attempts=3)
    assert client.current.is_closed()
    assert client.current.begin_exchange(request, RESENDABLE, "a").key is given


def test_a_configuration_that_a_client_cannot_use_is_refused() -> None:
    load(attempts=2)
    client = binding()
    hedged = {"pipelines": {"payments": {"layers": [{"type": "hedge", "delay": 1}]}}}
    with pytest.raises(ConfigError, match=r"cannot be applied to redouble\.client, which uses it"):
        config.load(hedged, environ=None)
    assert client.current.plan.max_attempts == 2


def test_a_name_inside_a_pipeline_is_refused() -> None:
    load(attempts=2)
    with pytest.raises(TypeError, match="name the whole pipeline in the configuration"):
        bind_policy("client", Timeout(1) | policies("payments"), None, send, aio=False)
