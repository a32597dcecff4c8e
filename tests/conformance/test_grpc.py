"""gRPC's retries over a real channel with redouble's interceptors: pushback, throttling, commit points."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

import redouble.grpc
from redouble import Backoff, Retry, TokenBucket, transient
from redouble.testing import virtual_time
from redouble.types import On
from tests.conformance.flows import INSTEAD
from tests.support.scripted import Draws

COLOURS = pytest.mark.parametrize("colour", ["blocking", "asyncio"])
SHAPES = pytest.mark.parametrize("shape", ["Unary", "Down", "Up", "Both"])
OPTIONS = [("grpc.enable_retries", 0)]
NOTHING = "nothing"  # no pushback, unlike an empty one
FAILED = ("UNAVAILABLE", NOTHING)


class Service(grpc.GenericRpcHandler):
    """A scripted servicer: each attempt ends with a code and a pushback, after some messages."""

    def __init__(self) -> None:
        self.steps: Sequence[tuple[str, ...]] = ()
        self.attempts = 0
        self.limits: list[float] = []
        self.target = ""

    def does(self, *steps: tuple[str, ...]) -> None:
        self.steps, self.attempts, self.limits = steps, 0, []

    def service(self, handler_call_details: Any) -> Any:
        handlers: dict[str, Any] = {
            "/test.Facts/Unary": grpc.unary_unary_rpc_method_handler(self._one),
            "/test.Facts/Down": grpc.unary_stream_rpc_method_handler(self._several),
            "/test.Facts/Up": grpc.stream_unary_rpc_method_handler(self._one),
            "/test.Facts/Both": grpc.stream_stream_rpc_method_handler(self._several),
        }
        return handlers[handler_call_details.method]

    def _one(self, request: Any, context: Any) -> bytes:
        return b"".join(self._several(request, context))

    def _several(self, request: Any, context: Any) -> Iterator[bytes]:
        code, pushback, *messages = self.steps[min(self.attempts, len(self.steps) - 1)]
        self.attempts += 1
        self.limits.append(context.time_remaining())
        if not isinstance(request, bytes):
            list(request)
        if pushback != NOTHING:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback),))
        for message in messages:
            if message == "head":
                context.send_initial_metadata((("head", "1"),))
            else:
                yield message.encode()
        if code != "OK":
            context.abort(grpc.StatusCode[code], "as the fact says")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    service, pool = Service(), ThreadPoolExecutor(4)
    server = grpc.server(pool)
    server.add_generic_rpc_handlers((service,))
    service.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield service
    server.stop(None).wait()
    pool.shutdown()


def stub_of(channel: Any, shape: str) -> Any:
    kinds = {"Unary": "unary_unary", "Down": "unary_stream", "Up": "stream_unary", "Both": "stream_stream"}
    return getattr(channel, kinds[shape])(f"/test.Facts/{shape}")


def called(service: Service, colour: str, shape: str, policy: Retry, request: Any = None) -> tuple[str, str]:
    """Make a call, and return the messages and the status code."""
    request = request or ([b"one"] if shape in ("Up", "Both") else b"one")
    got: list[bytes] = []
    try:
        if colour == "blocking":
            _blocking(service, shape, policy, request, got)
        else:
            asyncio.run(_async(service, shape, policy, request, got))
    except grpc.RpcError as error:
        return b" ".join(got).decode(), error.code().name
    return b" ".join(got).decode(), "OK"


def _blocking(service: Service, shape: str, policy: Retry, request: Any, got: list[bytes]) -> None:
    with grpc.insecure_channel(service.target, options=OPTIONS) as plain:
        answer = stub_of(grpc.intercept_channel(plain, *redouble.grpc.interceptors(policy)), shape)(request)
        for message in [answer] if isinstance(answer, bytes) else answer:
            got.append(message)  # noqa: PERF402  items before an error count


async def _async(service: Service, shape: str, policy: Retry, request: Any, got: list[bytes]) -> None:
    ours = redouble.grpc.aio_interceptors(policy)
    async with grpc.aio.insecure_channel(service.target, options=OPTIONS, interceptors=ours) as channel:
        call = stub_of(channel, shape)(request)
        if shape in ("Unary", "Up"):
            got.append(await call)
        else:
            async for message in call:
                got.append(message)  # noqa: PERF401


# ------------------------------------------------------------------------------- pushback


@pytest.mark.parametrize(
    ("steps", "waits"),
    [
        pytest.param([FAILED], [100, 200, 400, 700, 700], id="pushback.grpc.plain"),
        # gRPC restarts its backoff after a pushback (100, 200, 400); here it continues with the attempts.
        pytest.param(
            [
                ("UNAVAILABLE", "123"),
                ("UNAVAILABLE", "4567000"),
                FAILED,
                FAILED,
                FAILED,
                ("UNAVAILABLE", "0"),
            ],
            [0.123, 4567, 400, 700, 700],
            id="pushback.grpc.pushback_resets_backoff-deviates",
        ),
    ],
)
@COLOURS
@SHAPES
def test_pushback_grpc(
    service: Service, colour: str, shape: str, steps: Sequence[tuple[str, ...]], waits: list[float]
) -> None:
    """There are at most six attempts, whatever the pushback."""
    policy = Retry(
        attempts=6,
        backoff=Backoff.exponential(100).maximum(700).jitter(0.2),
        random=Draws(0.5),
        hints=INSTEAD,
        give_up_after=None,
    )
    service.does(*steps)
    with virtual_time() as clock:
        assert called(service, colour, shape, policy) == ("", "UNAVAILABLE")
        assert clock.delays == pytest.approx(waits)
    assert service.attempts == 6


@pytest.mark.parametrize("pushback", ["-1", "", "soon", "1.5s"])
@COLOURS
@SHAPES
def test_pushback_defaults_grpc(service: Service, colour: str, shape: str, pushback: str) -> None:
    """pushback.defaults (gRPC): a negative or invalid pushback stops the call, whatever the policy."""
    service.does(("UNAVAILABLE", pushback), ("OK", NOTHING, "a"))
    assert called(service, colour, shape, Retry(on=Exception, backoff=[0])) == ("", "UNAVAILABLE")
    assert service.attempts == 1


@COLOURS
@SHAPES
@pytest.mark.parametrize(
    ("on", "attempts"),
    [
        pytest.param(transient, 1, id="pushback.grpc.non_retriable-deviates"),
        pytest.param(grpc.RpcError, 2, id="pushback.grpc.non_retriable"),
    ],
)
def test_pushback_grpc_of_a_status_that_is_not_retriable(
    service: Service, colour: str, shape: str, on: On, attempts: int
) -> None:
    """It is not retried, unless a rule retries the status; grpc-java retries it, grpcio does not."""
    service.does(("INVALID_ARGUMENT", "0"), ("OK", NOTHING, "a"))
    called(service, colour, shape, Retry(on=on, backoff=[0]))
    assert service.attempts == attempts


# ----------------------------------------------------------------------------- throttling


@pytest.mark.parametrize(
    ("code", "pushback", "tokens"),
    [
        pytest.param("UNAVAILABLE", NOTHING, 2, id="budget.grpc_throttle_attribution.retriable"),
        pytest.param("INVALID_ARGUMENT", NOTHING, 3, id="budget.grpc_throttle_attribution.non_retriable"),
        pytest.param("INVALID_ARGUMENT", "", 2, id="budget.grpc_throttle_attribution.do_not_retry"),
        pytest.param("UNAVAILABLE", "-1", 2, id="budget.grpc_throttle_attribution.do_not_retry-retriable"),
    ],
)
@COLOURS
@SHAPES
def test_budget_grpc_throttle_attribution(
    service: Service, colour: str, shape: str, code: str, pushback: str, tokens: float
) -> None:
    """The bucket starts with 3 of 4 tokens; with 2 it grants none. "Do not retry" takes one, as in gRPC."""
    bucket = TokenBucket.grpc(4, 0.8)
    bucket.failed()
    service.does((code, pushback), ("OK", NOTHING, "a"))
    assert called(service, colour, shape, Retry(budget=bucket, backoff=[0])) == ("", code)
    assert (bucket.snapshot()["tokens"], service.attempts) == (tokens, 1)


# -------------------------------------------------------------------------- commit points


@pytest.mark.parametrize(
    ("steps", "expected", "attempts"),
    [
        # An error instead of the first message, with or without initial metadata that was not read.
        pytest.param([FAILED, ("OK", NOTHING, "a")], ("a", "OK"), 2, id="stream.commit_points.trailers-only"),
        pytest.param(
            [(*FAILED, "head"), ("OK", NOTHING, "a")], ("a", "OK"), 2, id="stream.commit_points.unseen-head"
        ),
        pytest.param(
            [(*FAILED, "a"), ("OK", NOTHING, "b")], ("a", "UNAVAILABLE"), 1, id="stream.commit_points.mid-way"
        ),
    ],
)
@COLOURS
@pytest.mark.parametrize("shape", ["Down", "Both"])
def test_stream_commit_points(
    service: Service,
    colour: str,
    shape: str,
    steps: Sequence[tuple[str, ...]],
    expected: tuple[str, str],
    attempts: int,
) -> None:
    service.does(*steps)
    assert called(service, colour, shape, Retry(on=Exception, backoff=[0])) == expected
    assert service.attempts == attempts


@pytest.mark.parametrize("shape", ["Down", "Both"])
def test_stream_commit_points_head(service: Service, shape: str) -> None:
    """stream.commit_points: initial metadata that the caller has read commit the call."""
    request: Any = b"one" if shape == "Down" else [b"one"]
    service.does((*FAILED, "head"), ("OK", NOTHING, "a"))
    with grpc.insecure_channel(service.target, options=OPTIONS) as plain:
        ours = redouble.grpc.interceptors(Retry(on=Exception, backoff=[0]))
        call = stub_of(grpc.intercept_channel(plain, *ours), shape)(request)
        assert call.initial_metadata() == (("head", "1"),)
        assert call.code() is grpc.StatusCode.UNAVAILABLE
    assert service.attempts == 1


@COLOURS
@pytest.mark.parametrize("shape", ["Up", "Both"])
def test_stream_commit_points_one_shot(service: Service, colour: str, shape: str) -> None:
    """stream.commit_points: with one-shot requests the first failure is raised (others refuse them)."""
    service.does(FAILED, ("OK", NOTHING, "a"))
    requests = iter([b"one"])
    assert called(service, colour, shape, Retry(backoff=[0]), requests) == ("", "UNAVAILABLE")
    assert service.attempts == 1


@COLOURS
@pytest.mark.parametrize("shape", ["Down", "Both"])
def test_stream_commit_points_limits(service: Service, colour: str, shape: str) -> None:
    """stream.commit_points: the limit of an attempt ends with the first message, so gRPC gets no deadline."""
    service.does(("OK", NOTHING, "a", "b"))
    policy = Retry(attempt_timeout=60, timeout=60)
    assert called(service, colour, shape, policy) == ("a b", "OK")
    assert service.limits[0] > 10**6
