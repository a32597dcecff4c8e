"""Twins: the blocking and the async version of the same code must be equal.

Both are parsed. In the async one `async` and `await` are erased, names are replaced by the tables below, and
intended differences are undone. Any remaining difference is a mistake in one of them.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import redouble

SOURCE = Path(redouble.__file__).parent

ASYNC_MANAGER = "AsyncSharedContextManager"
TWINS = [
    ("_drivers/calls", "call", "acall"),
    ("_drivers/calls", "drive", "adrive"),
    ("_drivers/calls", "outcome", "aoutcome"),
    ("_drivers/blocks", "start_attempt", "astart_attempt"),
    ("_drivers/context_managers", "EnteredManager.begin", "EnteredManager.abegin"),
    ("_drivers/context_managers", "EnteredManager.leave", "EnteredManager.aleave"),
    ("_internal/shared_context_manager", "Block.__enter__", "Block.__aenter__"),
    ("_internal/shared_context_manager", "SharedContextManager.__enter__", f"{ASYNC_MANAGER}.__aenter__"),
    ("_internal/shared_context_manager", "SharedContextManager._end_block", f"{ASYNC_MANAGER}._aend_block"),
    ("_layers/limits/slot_gate", "SlotGate._enter", "SlotGate._aenter"),
    ("_drivers/workers/worker_slots", "WorkerSlot.acquire", "WorkerSlot.aacquire"),
    ("_layers/limits/bulkhead", "Bulkhead._acquire_admission", "Bulkhead._aacquire_admission"),
    (
        "_layers/limits/adaptive_concurrency",
        "AdaptiveConcurrency._acquire_admission",
        "AdaptiveConcurrency._aacquire_admission",
    ),
    ("_layers/chaos", "Chaos.around.faulty", "Chaos.around_async.faulty"),
    ("_layers/gate", "Admission.begin", "Admission.abegin"),
    ("_layers/gate", "Gate._gated.gated", "Gate._gated_async.gated"),
    ("_drivers/streams", "Stream.__enter__", "Stream.__aenter__"),
    ("_drivers/streams", "Stream.__exit__", "Stream.__aexit__"),
    ("_drivers/streams", "Stream.__next__", "Stream.__anext__"),
    ("_drivers/opened_stream", "close_failed", "aclose_failed"),
    ("_drivers/opened_stream", "open_first", "aopen_first"),
    ("_drivers/streams", "Opener.open", "Opener.aopen"),
    ("_layers/limits/throttle", "Throttle._enter", "Throttle._aenter"),
    ("_layers/limits/rate/rate_limit", "RateLimit.acquire", "RateLimit.aacquire"),
    ("_layers/limits/rate/wait_queue", "WaitingGate._acquire_admission", "WaitingGate._aacquire_admission"),
    ("_drivers/calls", "drive_after_failure", "adrive_after_failure"),
    ("_clients/plan", "call_within", "acall_within"),
    ("_clients/plan", "attempt_within", "aattempt_within"),
    ("_clients/plan", "DeadlineLayer.around.limited", "DeadlineLayer.around_async.limited"),
    ("_clients/plan", "GuardedRetry.around.retrying", "GuardedRetry.around_async.retrying"),
    ("_clients/held_gate", "HeldGate.around.gated", "HeldGate.around_async.gated"),
    ("_clients/refused_response", "RefusedResponse.around.judged", "RefusedResponse.around_async.judged"),
    ("http/_sender", "Sender._send", "AsyncSender._send"),
    ("http/_sender", "Sender._complete", "AsyncSender._complete"),
    ("http/_sender", "Sender._attempt", "AsyncSender._attempt"),
    ("http/_sender", "Sender._deliver_and_settle", "AsyncSender._deliver_and_settle"),
    ("http/_sender", "Sender._settle", "AsyncSender._settle"),
    ("http/_sender", "Sender._prefetch", "AsyncSender._prefetch"),
    ("http/_sender", "Sender._restart", "AsyncSender._restart"),
    ("http/_sender", "Sender._close_unread", "AsyncSender._close_unread"),
    ("http/_sender", "Sender._conclude", "AsyncSender._conclude"),
    ("http/_response_body", "RestartableBody.chunks", "AsyncRestartableBody.chunks"),
    ("http/_response_body", "RestartableBody.read_whole", "AsyncRestartableBody.read_whole"),
    ("http/_response_body", "RestartableBody._read_first", "AsyncRestartableBody._read_first"),
    ("http/_response_body", "RestartableBody._restart", "AsyncRestartableBody._restart"),
    ("http/_httpx_transport", "HttpxBody.close", "AsyncHttpxBody.aclose"),
    ("http/_httpx_transport", "HttpxBody.close_source", "AsyncHttpxBody.close_source"),
    ("http/_httpx_transport", "HttpxSender._release", "AsyncHttpxSender._release"),
    ("http/_httpx_transport", "HttpxSender._deliver", "AsyncHttpxSender._deliver"),
    ("http/_httpcore", "close_stream", "aclose_stream"),
    ("http/_httpcore", "_close_all", "_aclose_all"),
    ("grpc/_attempt", "start_rpc", "astart_rpc"),
    ("grpc/_attempt", "run_policy", "arun_policy"),
    ("grpc/_attempt", "attempt_unary", "aattempt_unary"),
    ("grpc/_attempt", "attempt_stream", "aattempt_stream"),
    ("_layers/hedge/started_stream", "open_stream", "aopen_stream"),
    ("llm/_answer", "StreamOpener.open", "StreamOpener.aopen"),
    ("llm/_model", "Model.around", "Model.around_async"),
    ("llm/_text_stream", "TextStream.__next__", "TextStream.__anext__"),
]

# Twins that are not themselves async functions of a module or class: they contain one, or are nested in one.
INSIDE = {
    "GuardedRetry.around_async.retrying",
    "DeadlineLayer.around_async.limited",
    "Gate._gated_async.gated",
    "HeldGate.around_async.gated",
    "RefusedResponse.around_async.judged",
    "Chaos.around_async.faulty",
    "Model.around_async",
    "aattempt_function",
}

# Async names and their blocking counterparts. A blocking counterpart must not occur in async code.
FUNCTIONS = {
    "aattempt_stream": "attempt_stream",
    "aattempt_unary": "attempt_unary",
    "aattempt_within": "attempt_within",
    "astart_rpc": "start_rpc",
    "arun_limited": "run_limited",
    "acall": "call",
    "_aclose_all": "_close_all",
    "aclose_failed": "close_failed",
    "aclose_stream": "close_stream",
    "adrive": "drive",
    "adrive_after_failure": "drive_after_failure",
    "acall_within": "call_within",
    "awithin_limits": "within_limits",
    "AioFailedCall": "FailedCall",
    "aiter": "iter",
    "arun_policy": "run_policy",
    "anext": "next",
    "aopen_first": "open_first",
    "aopen_stream": "open_stream",
    "aoutcome": "outcome",
    "aresult_of": "result_of",
    "astream_of": "stream_of",
    "astart_attempt": "start_attempt",
    "awithin": "AttemptTimer",
    "AsyncIterable": "Iterable",
    "AsyncIterator": "Iterator",
    "AsyncSource": "Source",
    "AsyncStream": "BlockingStream",
    "StartedAsyncStream": "StartedStream",
    "StopAsyncIteration": "StopIteration",
}
METHODS = {
    "abegin": "begin",
    "aleave": "leave",
    "_aend_block": "_end_block",
    "_aacquire_admission": "_acquire_admission",
    "_anow": "_now",
    "_afirst": "_first",
    "_aenter": "_enter",
    "_await_slot": "_wait_for_slot",
    "aacquire": "acquire",
    "aenter": "enter",
    "aclose": "close",
    "afirst": "first",
    "aopen": "open",
    "around_async": "around",
    "asleep": "sleep",
    "handle_async_request": "handle_request",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__anext__": "__next__",
}

# The return types that stand for an awaited result.
AWAITABLES = {"Awaitable", "Coroutine"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def without_async(node: ast.AST, kind: Callable[..., ast.AST]) -> ast.AST:
    """Return the same statement without `async`."""
    return kind(**vars(node))


class Erase(ast.NodeTransformer):
    """Turns async code into the blocking code that its twin should be."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self.visit(without_async(node, ast.FunctionDef))

    def visit_AsyncFor(self, node: ast.AsyncFor) -> Any:
        return self.visit(without_async(node, ast.For))

    def visit_AsyncWith(self, node: ast.AsyncWith) -> Any:
        return self.visit(without_async(node, ast.With))

    def visit_Await(self, node: ast.Await) -> Any:
        return self.visit(node.value)

    def visit_If(self, node: ast.If) -> Any:
        """Undo an intended difference: blocking code skips a zero delay, async code makes it a checkpoint."""
        match node:
            case ast.If(
                test=ast.Compare(left=delay, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]),
                body=[
                    ast.Expr(ast.Await(ast.Call(func=ast.Attribute(attr="asleep"), args=[slept])))
                    | ast.With(
                        body=[
                            ast.Expr(ast.Await(ast.Call(func=ast.Attribute(attr="asleep"), args=[slept]))),
                            *_,
                        ]
                    ),
                    *_,
                ],
            ) if ast.dump(delay) == ast.dump(slept):
                self.used.add("checkpoint")
                node.test = delay
            case _:
                pass
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """Replace Awaitable[T] and Coroutine[Any, Any, T] by T."""
        if isinstance(node.value, ast.Name) and node.value.id in AWAITABLES:
            self.used.add(node.value.id)
            inner = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice
            return self.visit(inner)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> Any:
        """Invert the ``aio`` flag of a driver."""
        match node:
            case ast.keyword(arg="aio", value=ast.Constant(value=bool(aio))):
                self.used.add("aio")
                node.value = ast.Constant(not aio)
            case _:
                pass
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        """Replace async names, and `cancelling` by None: only a task can be cancelled."""
        if node.id == "cancelling":
            self.used.add(node.id)
            return ast.Constant(None)
        node.id = self.renamed(node.id, FUNCTIONS)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        node.attr = self.renamed(node.attr, METHODS)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        names = FUNCTIONS | METHODS
        node.name = self.renamed(node.name, names) if node.name in names else node.name
        return self.generic_visit(node)

    def renamed(self, name: str, names: dict[str, str]) -> str:
        if name in names:
            self.used.add(name)
            return names[name]
        return f"{name}_of_the_other_colour" if name in names.values() else name


class Unchecked(ast.NodeTransformer):
    """Undoes a check that only plain functions need: that the result is not an unawaited coroutine."""

    def visit_Call(self, node: ast.Call) -> Any:
        match node:
            case ast.Call(func=ast.Name(id="reject_awaitable"), args=[_, result]):
                return self.visit(result)
            case _:
                return self.generic_visit(node)


def functions(tree: ast.AST, prefix: str = "", *, inside: bool = False) -> Iterator[tuple[str, Function]]:
    """Yield every function of a module and of its classes by qualified name, also nested ones."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield prefix + node.name, node
        if isinstance(node, ast.ClassDef) or (inside and isinstance(node, Function)):
            yield from functions(node, f"{prefix}{node.name}.", inside=inside)


def parsed(module: str) -> dict[str, Function]:
    return dict(functions(ast.parse((SOURCE / f"{module}.py").read_text("utf-8")), inside=True))


def difference(sync: Function, aio: Function, erase: Erase | None = None) -> str:
    """Return the remaining differences of two twins as a diff; empty if they are equal."""
    erased: Any = (erase or Erase()).visit(copy.deepcopy(aio))
    sync = Unchecked().visit(copy.deepcopy(sync))
    if ast.dump(sync) == ast.dump(erased):
        return ""
    texts = [ast.unparse(ast.fix_missing_locations(tree)).splitlines() for tree in (sync, erased)]
    after = f"{aio.name}, without async and await"
    diff = difflib.unified_diff(texts[0], texts[1], sync.name, after, lineterm="")
    return "\n".join(diff) or "they read the same and parse differently"


@pytest.mark.parametrize(("module", "sync", "aio"), TWINS)
def test_twins_are_identical(module: str, sync: str, aio: str) -> None:
    names = parsed(module)
    assert isinstance(names[sync], ast.FunctionDef)
    left = difference(names[sync], names[aio])
    assert not left, f"\n{left}"


def test_every_entry_of_the_tables_is_used() -> None:
    erase = Erase()
    for module, sync, aio in TWINS:
        names = parsed(module)
        difference(names[sync], names[aio], erase)
    meant = {"aio", "cancelling", "checkpoint"}
    assert erase.used == FUNCTIONS.keys() | METHODS.keys() | AWAITABLES | meant


def test_every_async_function_has_a_twin_or_is_listed() -> None:
    """The listed functions belong to protocols that only async code has."""
    alone = {
        "_drivers/blocks.AsyncAttempts.__anext__",
        *(
            f"_drivers/attempt_timeout.{name}"
            for name in (
                "_arun_in_process",
                "_arun_limited_worker",
                "_arun_on_thread",
                "_arun_thread",
                "_wait_within",
                "arun_on_worker",
                "run_with_cancel_scope",
            )
        ),
        *(
            f"aiohttp.Middleware.{name}"
            for name in ("_complete", "_prepare_resend", "_read_result", "_release", "_discard")
        ),
        "http/_aiohttp_bodies.prepare_resend",
        *(
            f"http/_aiohttp_bodies.RestartableContent.{name}"
            for name in ("_read", "_read_within", "_restart")
        ),
        *(f"http/_httpx_transport.PrefetchedBody.{name}" for name in ("__aiter__", "aclose")),
        *(
            f"http/_httpx_transport.AsyncHttpxSender.{name}"
            for name in ("_read_result", "_discard", "aclose")
        ),
        *(
            "_runtime/asyncio_backend.checkpoint",
            "_drivers/calls.acall_blocking",
        ),
        *("_layers/hedge/race.close_all", "_layers/hedge/started_stream.StartedAsyncStream.aclose"),
        "_layers/limits/rate/wait_queue.WaitQueue.aenter",
        *(
            f"llm/_stream.AsyncStream.{name}"
            for name in ("__anext__", "_open_and_read", "aclose", "asend", "athrow")
        ),
        *(
            f"grpc/_aio_call.{name}"
            for name in ("status_of", "_iterate", "StreamResponseCall.__anext__", "StreamResponseCall.read")
        ),
        *(
            f"grpc/_aio_call.TaskCall.{name}"
            for name in ("initial_metadata", "wait_for_connection", "_running_rpc", "_start_rpc")
        ),
        *("grpc/_aio_call.WritableCall.write", "grpc/_request_stream.AsyncAttemptRequests.__anext__"),
        *(f"grpc/_request_stream.AsyncBufferedRequests.{name}" for name in ("take", "_read_ahead")),
        *("grpc/_attempt.acall_unary", "grpc/_interceptors.start_task"),
        *("llm/_answer._raise_cut_short", "llm/_answer.Answer._afinal"),
        *("llm/_stream_adapters.asource_of", "llm/_text_stream.Chunks.__anext__"),
        *(f"_layers/hedge/race.AsyncHedgedCall.{name}" for name in ("run", "run_attempt")),
        *(
            f"_layers/hedge/race_asyncio.{name}"
            for name in (
                "RaceTask._attempt",
                "RaceTask._end_others",
                "RaceTask.run",
                "_close_shielded",
                "_wait_all",
            )
        ),
        *(
            f"_layers/hedge/race_trio.{name}"
            for name in ("RaceNurseryTask._attempt", "RaceNurseryTask._start_after", "RaceNurseryTask.run")
        ),
        *(f"_drivers/context_managers.{name}" for name in ("EnteredManager._aenter", "Entrance.__aexit__")),
        *(f"_internal/shared_context_manager.Block.{name}" for name in ("abegin", "aleave")),
        *(
            "_drivers/slot_wait.SlotWait._await_slot",
            "_layers/results/fallback.Fallback._open_stream",
            "_layers/results/coalesce.Coalesce._ajoin",
            "_layers/results/substitute._as_async_items",
            "_layers/results/substitute.SubstituteChain._waiting",
            "_layers/results/substitute.SubstituteChain.afirst",
            "_layers/results/substitute.SubstituteChain.open_first",
        ),
        *(
            "_layers/gate.StreamAdmission.aopen",
            "_layers/timeout/timeout.Timeout._call_within",
            "_layers/timeout/timeout.Timeout._open_varying",
            "_layers/gate.Gate._aacquire_admission",
        ),
        *(f"_drivers/async_generator.{name}" for name in ("_forward", "_items")),
        *("_drivers/opened_stream.StreamOwner.aopen", "_drivers/opened_stream.close_generator"),
        "_drivers/opened_stream.AsyncSource.afirst",
        "_drivers/streams.Stream.aclose",
        "_drivers/opened_stream.AsyncSource.aclose",
        "_drivers/opened_stream.astream_of",
        "_layers/retry/retry.Retry.acall",
        "config/_named_policy.Named.acall",
        "_runtime/trio_backend._quietly",
        "testing/_virtual_clock.SleeperQueue.wait",
        "testing/_virtual_clock.VirtualClock.asleep",
    }
    found = {
        f"{path.relative_to(SOURCE).with_suffix('').as_posix()}.{name}"
        for path in SOURCE.rglob("*.py")
        for name, node in functions(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.AsyncFunctionDef)
    }
    assert found == alone | {f"{m}.{aio}" for m, _, aio in TWINS if aio not in INSIDE}


# --------------------------------------------------------------- this test can fail

SYNC = """
def wait(clock, delay):
    "Wait."
    if delay:
        clock.sleep(delay)
    clock.close(aio=False)
"""
ASYNC = """
async def wait(clock, delay):
    "Wait."
    if delay is not None:
        await clock.asleep(delay)
    clock.aclose(aio=True)
"""


def compare(sync: str, aio: str) -> str:
    plain, awaiting = (dict(functions(ast.parse(text)))["wait"] for text in (sync, aio))
    return difference(plain, awaiting)


def test_equal_twins_have_no_difference() -> None:
    assert compare(SYNC, ASYNC) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("clock.aclose(aio=True)", "clock.aclose(1, aio=True)"),
        ("clock.aclose(aio=True)", "clock.aclose(aio=False)"),
        ("clock.aclose(", "clock.later("),
        ("clock.aclose(", "clock.close("),
        ('"Wait."', '"Wait a little."'),
        ("await clock.asleep(delay)", "await clock.asleep(delay + 1)"),
        ("await clock.asleep(delay)", "await clock.asleep(delay); delay = None"),
        ("if delay is not None", "if delay is None"),
        ("if delay is not None", "if clock is not None"),
        ("(clock, delay)", "(clock, delay=0)"),
        ("clock.aclose", "return clock.aclose"),
        ("clock.aclose(aio=True)", ""),
    ],
)
def test_a_change_in_one_twin_is_detected(old: str, new: str) -> None:
    left = compare(SYNC, ASYNC.replace(old, new))
    assert left.startswith("--- wait\n+++ wait, without async and await")


@pytest.mark.parametrize(("module", "sync", "aio"), TWINS)
def test_a_change_in_any_real_twin_is_detected(module: str, sync: str, aio: str) -> None:
    names = parsed(module)
    mutant = copy.deepcopy(names[aio])
    mutant.body.append(ast.Pass())
    assert "+    pass" in difference(names[sync], mutant)
    assert not difference(names[sync], names[aio]), "looking must not change what is looked at"
