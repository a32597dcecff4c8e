"""Gate, the base class of layers that admit or reject a call and record its result.

A gate implements `admit` and `ended`; this module drives both for calls, streams and ``with`` blocks.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, ClassVar, Literal, ParamSpec, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from redouble._drivers.opened_stream import StreamOwner, aopen_first
from redouble._drivers.stream_function import wrap_stream
from redouble._engine.nested import asks_gate
from redouble._engine.per_call import PerCall
from redouble._failures.verdict import FailureFilter, Refusal
from redouble._internal.callables import reject_awaitable
from redouble._internal.codegen import Template, compile_wrapper
from redouble._internal.logger import call_hook, is_own, log_broken_hook
from redouble._internal.public import public
from redouble._internal.reentrancy import ReentrancySafe
from redouble._internal.shared_context_manager import AsyncSharedContextManager, Block, never_began
from redouble._internal.validation import UNSET, format_seconds
from redouble._layers.analysis import Traits, WorstCase, combined_traits
from redouble._layers.layer import Layer, Layers
from redouble._runtime.backend import task_cancelled
from redouble._runtime.clock import SYSTEM, WRAPPER_CLOCK, Clock
from redouble._telemetry.emit import EMITTED, emit_rejected, layer_kind
from redouble.errors import Rejected

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

Wrapper: TypeAlias = tuple[Template, dict[str, Any]]  # a template, and names of its own

PER_CALL = Template(
    "gate",
    """\
{async_}def gated({parameters}):
    redouble_options = redouble_per_call({arguments})
    with redouble_Admission(redouble_owner, per_call=redouble_options) as redouble_admission:
        redouble_result = {await_}redouble_fn({arguments})
        {check}
        return redouble_admission.judge(redouble_result)
""",
)
PER_CALL_STREAM = Template(
    "gate of a stream",
    """\
def gated({parameters}):
    redouble_options = redouble_per_call({arguments})
    with redouble_Admission(redouble_owner, stream=True, per_call=redouble_options):
        return (yield from redouble_fn({arguments}))
""",
)


@public("redouble")
class Gate(AsyncSharedContextManager["Admission"], Layer):
    """A layer that admits a call or raises `Rejected`, and records how the call ended.

    Write ``admit`` and ``ended``; both are quick, are passed the time, and never wait. The time is that of
    ``clock.now()`` in every colour: one gate may serve threads and event loops at once. A gate also works as
    ``with gate as admission:`` and ``async with gate as admission:``, where ``admission.failed(...)`` and
    ``admission.succeeded(...)`` report how the block ended if no error says so. All hooks of `Layer` are
    optional.
    """

    _kept_by_wrapper = True

    clock: Clock = SYSTEM
    ends_with_head: ClassVar[bool] = False
    """True if the gate needs no body of a response: in a client its admission ends with the head."""

    _per_call: PerCall | None = None  # options that are functions of a call's arguments

    _problem_outside_retry: ClassVar[str] = ""  # why `lint` advises against the gate around a retry; "": not

    def admit(self, now: float, /) -> Any:
        """Admit a call and return its ticket, or raise `Rejected`.

        Any other error comes out as it is, and the function is not called: the gate could not decide.
        """
        raise TypeError(
            f"{type(self).__name__} cannot admit a call at {now}: a gate needs a method admit(self, now)"
        )

    def ended(self, ticket: Any, error: BaseException | None, now: float, /) -> None:
        """Record how an admitted call ended: None is success; a cancellation is an error too.

        A result with a `refusal`, and a block that was reported as failed, ends with that error.

        It only accounts, so what it raises is logged once and ignored: the caller gets the result, or the
        error, of the function.
        """

    def refusal(self, result: Any, /) -> Exception | None:  # noqa: ARG002
        """Return the error that ``ended`` is passed for a result that counts as a failure; None: a success.

        The caller gets the result all the same. Our gates have an option for it, ``until``.
        """
        return None

    def _wrapper(self, *, is_async: bool) -> Wrapper | None:  # noqa: ARG002
        """Return the template of a wrapper that is faster than the general one, and its names; or None."""
        return None

    def _compile(
        self, fn: Callable[..., Any], per_call: PerCall | None, *, is_async: bool
    ) -> Callable[..., Any] | None:
        wrapper = self._wrapper(is_async=is_async)
        if per_call is not None:
            per_call.check(fn)
            wrapper = wrapper or (PER_CALL, {"Admission": Admission, "per_call": per_call.evaluate})
        if wrapper is None:
            return None
        template, names = wrapper
        exception = task_error if is_async else sys.exception
        ended = self.ended if is_own(self) else partial(call_hook, self, "ended")
        common = {"owner": self, "ended": ended, "exception": exception, **WRAPPER_CLOCK}
        if per_call is not None:
            common["per_call"] = per_call.inlined
        return compile_wrapper(fn, template, is_async=is_async, **common | names)

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        return self._gated(fn, self._per_call)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        return self._gated_async(fn, self._per_call)

    def _gated(self, fn: Callable[P, T], per_call: PerCall | None) -> Callable[P, T]:
        """Return ``fn`` wrapped; a client passes functions of its request."""

        def gated(*args: P.args, **kwargs: P.kwargs) -> T:
            with Admission(self) as admission:
                return admission.judge(reject_awaitable(fn, fn(*args, **kwargs)))

        return self._compile(fn, per_call, is_async=False) or gated

    def _gated_async(
        self, fn: Callable[P, Awaitable[T]], per_call: PerCall | None
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` wrapped; a client passes functions of its request."""

        async def gated(*args: P.args, **kwargs: P.kwargs) -> T:
            with Admission(self) as admission:
                return admission.judge(await fn(*args, **kwargs))

        return self._compile(fn, per_call, is_async=True) or gated

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        per_call = self._per_call

        def gated(*args: P.args, **kwargs: P.kwargs) -> Generator[T, S, Any]:
            with Admission(self, stream=True):
                return (yield from fn(*args, **kwargs))

        if per_call is None:
            return gated
        per_call.check(fn)
        names = {"owner": self, "Admission": Admission, "per_call": per_call.evaluate}
        return compile_wrapper(fn, PER_CALL_STREAM, is_async=False, **names)

    def around_async_stream(
        self, fn: Callable[P, AsyncGenerator[T, S]], /
    ) -> Callable[P, AsyncGenerator[T, S]]:
        if self._per_call is not None:
            self._per_call.check(fn)
        return wrap_stream(fn, partial(StreamAdmission, self))

    def traits(self) -> Traits:
        """Return `Traits` with the gate itself as shared: it must not occur twice in one pipeline."""
        return Traits(shared=(self,))

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterable[str]:  # noqa: ARG002
        if self._problem_outside_retry and combined_traits(inner).retries:
            yield f"{type(self).__name__} outside Retry: {self._problem_outside_retry}; put it inside"

    def _title(self, kind: str) -> str:
        """Return the kind of the gate and its name, for messages."""
        return f"the {kind}" if self.name is None else f"the {kind} {self.name}"

    @asks_gate
    def _acquire_admission(self, admission: Admission) -> None:
        """Acquire admission in blocking code, or raise `Rejected`."""
        try:
            admission.ticket = self.admit(self.clock.now())
        except Rejected as error:
            emit_rejected(error, layer_kind(self), self.name)  # no-op if the gate has emitted it
            error.__dict__.pop(EMITTED, None)  # a gate may raise the same instance again
            raise
        admission.entered = True

    async def _aacquire_admission(self, admission: Admission) -> None:
        """Acquire admission in async code, or raise `Rejected`; most gates do not wait."""
        self._acquire_admission(admission)

    def _end_admission(self, admission: Admission, error: BaseException | None) -> None:
        """Record the result of the call of a ``with`` block or generator."""
        now, ended = self.clock.now(), self.ended
        admission.entered = False  # no signal handler can run between this and the call
        try:
            ended(admission.ticket, error, now)
        except Exception as raised:
            admission.entered = never_began(raised, ended)
            if admission.entered or is_own(self):
                raise
            log_broken_hook(self, "ended")
        except BaseException as raised:
            admission.entered = never_began(raised, ended)
            raise

    def _new_block(self) -> Admission:
        return Admission(self)


def as_it_is(refusal: Exception | None, result: object, /) -> Exception | None:  # noqa: ARG001
    """Return the refusal of a result: what it is converted to if it is an answer."""
    return refusal


class JudgingGate(ReentrancySafe, Gate):
    """A gate with the option ``until``, for which its wrappers have a template of their own.

    A reload may set the option or remove it: the gate compiles its wrappers again then.
    """

    _failures: FailureFilter

    def __init__(self) -> None:
        super().__init__()
        self._wrappers: WeakKeyDictionary[Any, tuple[PerCall | None, bool]] = WeakKeyDictionary()

    def refusal(self, result: Any, /) -> Exception | None:
        """Return the error that a result counts as; None if ``until`` accepts it or there is none."""
        return self._failures.refusal(result)

    @property
    def _judges(self) -> bool:
        """True if results may count as failures: by ``until``, or by the `refusal` of a subclass."""
        return self._failures.until is not None or self._refusal_is_overridden

    @property
    def _refusal_is_overridden(self) -> bool:
        return type(self).refusal is not JudgingGate.refusal

    def _rule_names(self) -> dict[str, Any]:
        """Return the names by which a template calls the rule, and converts an answer other than True."""
        if self._refusal_is_overridden:
            return {"accepts": self.refusal, "answered": as_it_is}
        if self._failures.until is None:
            return {}  # so a call in flight keeps the rule that it began with
        return {"accepts": self._failures.accepts, "answered": self._failures.answered}

    def _compile(
        self, fn: Callable[..., Any], per_call: PerCall | None, *, is_async: bool
    ) -> Callable[..., Any] | None:
        return self._run_now(self._compile_and_record, fn, per_call, is_async)

    def _compile_and_record(
        self, fn: Callable[..., Any], per_call: PerCall | None, is_async: bool
    ) -> Callable[..., Any] | None:
        wrapper = super()._compile(fn, per_call, is_async=is_async)
        if wrapper is not None:
            self._wrappers[wrapper] = per_call, is_async
        return wrapper

    def _adopt_rules(self, failures: FailureFilter) -> None:
        """Judge by other rules from now on; under the lock."""
        changed = self._failures.until is not failures.until
        self._failures = failures
        if not changed:
            return
        for wrapper, (per_call, is_async) in list(self._wrappers.items()):
            fresh: Any = super()._compile(wrapper.__globals__["redouble_fn"], per_call, is_async=is_async)
            wrapper.__globals__.update(fresh.__globals__)  # first: it has the names of both templates
            wrapper.__code__ = fresh.__code__


@public("redouble.types")
class Admission(Block["Admission"]):
    """The admission of one call, of a ``with`` block or of a generator: what ``with gate as ...`` returns.

    Without a report a block that ends without an error is a success, and one that raises a failure, if the
    gate's ``on`` says so. Closing a generator early counts as success.
    """

    # entered: True if the end of the call has to be recorded, also if entering is interrupted.
    # per_call: what the gate's functions of the call's arguments have returned; None for a block.
    __slots__ = ("_reported", "entered", "gate", "per_call", "stream", "ticket")

    def __init__(self, gate: Gate, *, stream: bool = False, per_call: Any = None) -> None:
        self.gate, self.stream, self.per_call = gate, stream, per_call
        self.ticket: Any = None
        self.entered = False
        self._reported: Exception | Literal["success"] | None = None

    def failed(self, why: object = None, /) -> None:
        """Report that the block failed, although it raises nothing; ``why``: its result, or an exception.

        An exception counts as if it had been raised: ``on`` decides. Anything else is a failure.
        """
        self._reported = why if isinstance(why, Exception) else Refusal(why)

    def succeeded(self, result: object = UNSET, /) -> None:
        """Report that the block is a success even if it raises an error afterwards.

        ``result``: its result, which the gate's ``until`` may refuse; then the block is a failure.
        """
        refusal = None if result is UNSET else self.gate.refusal(result)
        self._reported = "success" if refusal is None else refusal

    def judge(self, result: T) -> T:
        """Report a result that the gate refuses as a failure; return the result."""
        refusal = self.gate.refusal(result)
        if refusal is not None:
            self._reported = refusal
        return result

    def begin(self) -> Admission:
        """Acquire admission, or raise `Rejected`."""
        self.gate._acquire_admission(self)
        return self

    async def abegin(self) -> Admission:
        """Acquire admission, or raise `Rejected`."""
        await self.gate._aacquire_admission(self)
        return self

    def leave(self, error: BaseException | None) -> None:
        """Record the end of the call if it was admitted."""
        if self._reported is not None and (error is None or isinstance(error, Exception)):
            error = None if self._reported == "success" else self._reported
        if self.stream and isinstance(error, GeneratorExit):
            error = None
        if self.entered:
            self.gate._end_admission(self, error)


class StreamAdmission(StreamOwner):
    """The owner of one async generator, with its admission."""

    def __init__(self, gate: Gate, make: partial[AsyncGenerator[Any, Any]]) -> None:
        super().__init__(partial(aopen_first, make))
        self._admission = Admission(gate)
        per_call = gate._per_call
        evaluate = None if per_call is None else partial(per_call.evaluate, *make.args, **make.keywords)
        self._evaluate = evaluate

    async def aopen(self) -> tuple[Any, Any]:
        """Acquire admission, open the stream and return it with its first item."""
        if self._evaluate is not None:
            self._admission.per_call = self._evaluate()
        await self._admission.__aenter__()
        return await super().aopen()

    def cut(self, error: BaseException | None) -> None:
        """Record how the stream ended; None: it was exhausted, closed or abandoned."""
        self._admission.__exit__(None, error, None)


def describe_others(wait: float | None, order: str = "") -> str:
    """Return what a gate does with calls that it cannot admit at once; None: they wait for ever."""
    if wait == 0:
        return "others are refused"
    return f"others wait{'' if wait is None else f' up to {format_seconds(wait)}'}{order}"


CANCELLED = GeneratorExit()  # stands for any cancellation: gates do not count it


def task_error() -> BaseException | None:
    """Return the exception being handled; `CANCELLED` if the function turned a cancellation into an error."""
    error = sys.exception()
    return CANCELLED if isinstance(error, Exception) and task_cancelled(error) else error
