"""The arguments of an export: policies, also by name, methods and codes; and their error messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from redouble import Bulkhead, Pipeline, Retry, Timeout, retry
from redouble.config import _reload as _live
from redouble.config._reload import ConfigStore, load, policies
from redouble.errors import ConfigError
from redouble.grpc._service_config_export import service_config


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without a configuration, and leave none behind."""
    monkeypatch.setattr(_live, "LIVE", ConfigStore())


def names(**options: Any) -> Any:
    return service_config(**options).mapping["methodConfig"][0]["name"]


def test_without_methods_the_config_is_for_all() -> None:
    assert names() == names(methods=None) == [{}]


@pytest.mark.parametrize(
    ("methods", "written"),
    [
        (["a.b.Orders"], [{"service": "a.b.Orders"}]),
        (["Orders/Get"], [{"service": "Orders", "method": "Get"}]),
        (
            ("a.Orders", "a.Orders/Get", "b_1.X-y"),
            [{"service": "a.Orders"}, {"service": "a.Orders", "method": "Get"}, {"service": "b_1.X-y"}],
        ),
        (["a.Orders", "a.Orders"], [{"service": "a.Orders"}]),
    ],
)
def test_methods_are_written_as_names(methods: Any, written: list[dict[str, str]]) -> None:
    assert names(methods=methods) == written


def test_codes_replace_the_rule() -> None:
    config = service_config(Retry(on=OSError), codes=(name for name in ("INTERNAL", "UNKNOWN", "INTERNAL")))
    policy = config.mapping["methodConfig"][0]["retryPolicy"]
    assert policy["retryableStatusCodes"] == ["INTERNAL", "UNKNOWN"]
    assert not any(sentence.startswith("on") for sentence in config.lost)


def test_codes_may_be_status_codes_of_grpc() -> None:
    config = service_config(codes=[grpc.StatusCode.ABORTED, "INTERNAL", grpc.StatusCode.INTERNAL])
    policy = config.mapping["methodConfig"][0]["retryPolicy"]
    assert policy["retryableStatusCodes"] == ["ABORTED", "INTERNAL"]


def outer(fn: Callable[..., object]) -> Callable[..., object]:
    return fn


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (5, r"policy=5 has no Retry to export: write Retry\(\.\.\.\), or a pipeline with one"),
        ("grpc", r"policy='grpc' has no Retry to export: write Retry\("),
        (Retry, r"policy=<class .*Retry'> has no Retry to export: write Retry\("),
        (outer, r"policy=<function outer .*> has no Retry to export: write Retry\("),
        (retry, r"policy=.* has no Retry to export: write Retry\("),
        (
            Timeout(5),
            r"policy=Timeout\(.*\) has no Retry to export: write Retry\(\.\.\.\), or a ",
        ),
        (Bulkhead(1) | Timeout(5), r"policy=Bulkhead\(.*\) has no Retry to export"),
        (Pipeline(), r"policy=Pipeline\(\) has no Retry to export"),
    ],
)
def test_a_wrong_policy_raises(policy: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        service_config(policy)


@pytest.mark.parametrize(
    ("methods", "kind", "message"),
    [
        ("a.Orders", TypeError, r"methods='a\.Orders': write a list of texts: 'package\.Service' or "),
        (b"a.Orders", TypeError, r"methods=b'a\.Orders': write a list of texts"),
        (5, TypeError, r"methods=5: write a list of texts"),
        ({"service": "a.Orders"}, TypeError, r"methods=\{'service': 'a\.Orders'\}: write a list of texts"),
        ([{"service": "a.B"}], TypeError, r"methods: item=\{'service': 'a\.B'\}: write 'package\.Ser"),
        (
            [],
            ValueError,
            r"methods=\[\] is empty, so it would apply to no method: write None for all methods",
        ),
        ([5], TypeError, r"methods: item=5: write 'package\.Service' or 'package\.Service/Method'"),
        (
            ["/a.B/C"],
            ValueError,
            r"methods: '/a\.B/C' is not the name of a service or method: write 'a\.B/C'",
        ),
        (["a.B/"], ValueError, r"methods: 'a\.B/' is not the name of a service or method: write 'a\.B'$"),
        (["/a.B/"], ValueError, r"methods: '/a\.B/' is not the name of a service or method: write 'a\.B'"),
        *(
            (
                [wrong],
                ValueError,
                r"methods: '.*' is not the name of a service or method: write 'package\.Serv",
            )
            for wrong in ("", "a.B/C/D", "a.B C", "a.B/*", "a.B\n")
        ),
    ],
)
def test_a_wrong_method_raises(methods: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"^{message}"):
        service_config(methods=methods)


@pytest.mark.parametrize(
    ("codes", "kind", "message"),
    [
        (
            "UNAVAILABLE",
            TypeError,
            r"codes='UNAVAILABLE': write a list of texts: names, such as 'UNAVAILABLE'",
        ),
        (14, TypeError, r"codes=14: write a list of texts"),
        ([14], TypeError, r"codes: item=14: write names, such as 'UNAVAILABLE'"),
        ([{"a": 1}], TypeError, r"codes: item=\{'a': 1\}: write names, such as 'UNAVAILABLE'"),
        ([grpc.StatusCode.OK], ValueError, r"codes: 'OK' is a success"),
        (
            [],
            ValueError,
            r"codes=\[\] is empty, so nothing would be retried: write Retry\(att",
        ),
        (["OK"], ValueError, r"codes: 'OK' is a success: write the codes of failures, such as 'UNAVAILABLE'"),
        (["UNAVAILABE"], ValueError, r"codes: 'UNAVAILABE' is no status code; did you mean 'UNAVAILABLE'\?"),
        (
            ["unavailable"],
            ValueError,
            r"codes: 'unavailable' is no status code; did you mean 'UNAV",
        ),
        (["503"], ValueError, r"codes: '503' is no status code; write one of ABORTED, ALREADY_EXISTS, "),
    ],
)
def test_a_wrong_code_raises(codes: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"^{message}"):
        service_config(codes=codes)


def test_a_named_policy_is_exported_in_its_current_form() -> None:
    policy = policies("orders")
    with pytest.raises(ConfigError, match="no configuration is loaded yet"):
        service_config(policy)
    load({"policies": {"orders": {"attempts": 3}}}, environ=None)
    for by_name in (policy, Timeout(5) | policy):
        (method,) = service_config(by_name).mapping["methodConfig"]
        assert method["retryPolicy"]["maxAttempts"] == 3
