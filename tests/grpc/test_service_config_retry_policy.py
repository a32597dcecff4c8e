"""gRPC's own client accepts every exported service config, and retries accordingly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from redouble import Backoff, Retry, Timeout, TokenBucket, presets
from redouble.grpc._service_config_export import ServiceConfig, service_config
from tests.support.grpc.policies import native

SOON = Backoff.constant(0.003).jitter(0.2)
PATIENCE = 20.0  # seconds: the limit of a call on a busy machine


class Service(grpc.GenericRpcHandler):
    """Fails with one code after the other, then succeeds, and counts its calls."""

    def __init__(self) -> None:
        self.codes: list[grpc.StatusCode] = []
        self.calls = 0

    def answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls += 1
        if self.calls <= len(self.codes):
            context.abort(self.codes[self.calls - 1], "as told")
        return request

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Handle every method."""
        return grpc.unary_unary_rpc_method_handler(self.answer, bytes, bytes)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Service, str]]:
    """Run the service, and yield it with its address."""
    service = Service()
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((service,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield service, f"127.0.0.1:{port}"
        server.stop(None).wait()


def code_of(error: Any) -> str:
    return error.code().name  # type: ignore[no-any-return]  # in grpc's types an RpcError has no code


Call = Callable[..., list[str]]


@pytest.fixture
def call(served: tuple[Service, str]) -> Call:
    """Return a function that makes calls over one channel, and returns the status code of each."""
    service, target = served

    def calls(config: ServiceConfig, *codes: str, times: int = 1) -> list[str]:
        service.codes = [grpc.StatusCode[code] for code in codes]
        service.calls = 0
        ends: list[str] = []
        with grpc.insecure_channel(target, options=config.options) as channel:
            get = channel.unary_unary("/a.Orders/Get", bytes, bytes)
            for _ in range(times):
                try:
                    get(b"", timeout=PATIENCE)
                    ends.append("OK")
                except grpc.RpcError as error:
                    ends.append(code_of(error))
        return ends

    return calls


def soon(**options: Any) -> Retry:
    return native(**{"backoff": SOON} | options)


@pytest.mark.parametrize(
    ("config", "codes", "attempts", "end"),
    [
        (service_config(soon(attempts=4)), ["UNAVAILABLE"] * 2, 3, "OK"),
        (service_config(soon(attempts=2)), ["UNAVAILABLE"] * 2, 2, "UNAVAILABLE"),
        (service_config(soon(attempts=9)), ["UNAVAILABLE"] * 9, 5, "UNAVAILABLE"),
        (service_config(soon(attempts=1)), ["UNAVAILABLE"] * 2, 1, "UNAVAILABLE"),
        (service_config(soon()), ["ABORTED", "RESOURCE_EXHAUSTED"], 3, "OK"),
        (service_config(soon()), ["INTERNAL"], 1, "INTERNAL"),
        (service_config(soon(), codes=["INTERNAL"]), ["INTERNAL"] * 2, 3, "OK"),
        (service_config(soon(), codes=["INTERNAL"]), ["UNAVAILABLE"], 1, "UNAVAILABLE"),
        (service_config(soon(), methods=["a.Orders"]), ["UNAVAILABLE"], 2, "OK"),
        (service_config(soon(), methods=["a.Orders/Get"]), ["UNAVAILABLE"], 2, "OK"),
        (
            service_config(soon(), methods=["a.Orders/Put"]),
            ["UNAVAILABLE"],
            1,
            "UNAVAILABLE",
        ),
        (service_config(soon(), methods=["b.Stock"]), ["UNAVAILABLE"], 1, "UNAVAILABLE"),
    ],
)
def test_grpc_retries_as_exported(
    served: tuple[Service, str],
    call: Call,
    config: ServiceConfig,
    codes: list[str],
    attempts: int,
    end: str,
) -> None:
    assert call(config, *codes) == [end]
    assert served[0].calls == attempts


def test_grpc_throttles_as_exported(served: tuple[Service, str], call: Call) -> None:
    config = service_config(soon(attempts=3, budget=TokenBucket.grpc(tokens=6, ratio=1)))
    # 6 tokens: the third failure leaves no more than half of them, and from then on no call is retried.
    assert call(config, *["UNAVAILABLE"] * 5, times=3) == ["UNAVAILABLE"] * 3
    assert served[0].calls == 5


def test_delays_of_zero_do_not_hang_a_call(served: tuple[Service, str], call: Call) -> None:
    """With delays that are too short gRPC hangs until the deadline, so these are exported as 2 ms."""
    config = service_config(soon(attempts=5, backoff=[0] * 4))
    for _ in range(5):
        assert call(config, *["UNAVAILABLE"] * 4) == ["OK"]
        assert served[0].calls == 5


@pytest.mark.parametrize("policy", [soon(timeout=0.2), Timeout(3) | soon()])
def test_a_policy_with_a_timeout_is_retried_by_grpc(call: Call, policy: Any) -> None:
    assert call(service_config(policy), "UNAVAILABLE") == ["OK"]


@pytest.mark.parametrize("name", presets.__all__)
def test_every_preset_makes_a_config_that_grpc_accepts(call: Call, name: str) -> None:
    assert call(service_config(getattr(presets, name)())) == ["OK"]


@pytest.mark.parametrize(
    "policy",
    [
        soon(backoff=Backoff.exponential(0.01, 1e300), timeout=0.5),
        soon(backoff=Backoff.exponential(1e300), timeout=1e300),
        soon(backoff=[1e9, 1e-9]),
        soon(backoff=[0.004, 0.002]),
        soon(budget=TokenBucket.grpc(tokens=1000, ratio=1000)),
        soon(budget=TokenBucket.grpc(tokens=1.4, ratio=0.0014)),
    ],
)
def test_grpc_accepts_extreme_values(call: Call, policy: Retry) -> None:
    assert call(service_config(policy)) == ["OK"]
