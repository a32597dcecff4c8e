"""The analysis of a pipeline: `Pipeline.explain`, `Pipeline.check`, and the hooks of its layers combined.

The hooks of a layer may be written by users. So their results are validated here, and an exception that a
hook raises gets a note with the name of the hook.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from math import inf, isinf
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast
from weakref import WeakSet

from redouble._failures.verdict import On
from redouble._internal.public import public
from redouble._internal.validation import format_seconds

if TYPE_CHECKING:
    from redouble._layers.layer import Layer, Layers

T = TypeVar("T")


@public("redouble.types")
class Traits(NamedTuple):
    """Properties of a layer that other layers need: the result of `Layer.traits`.

    retries: True if the layer may call the inner function more than once; `Pipeline.check` calls every such
        layer a Retry.
    concurrent: True if several calls of the inner function may run at once.
    time_limit: seconds after which the layer ends the whole call; infinite for no limit.
    each_call_limit: seconds after which the layer ends one call of the inner function; infinite for no limit.
    handles: the errors that the layer acts on or counts, as in ``Retry(on=...)``; None if it does not depend
        on errors.
    shared: objects with state, such as a budget, that `Pipeline.check` reports if they occur twice in one
        pipeline.
    shares_results: True if calls may get the result of another call: for functions that only read.
    resends: the request methods that the layer sends again although they are not idempotent, such as POST.
    """

    retries: bool = False
    concurrent: bool = False
    time_limit: float = inf
    each_call_limit: float = inf
    handles: On | None = None
    shared: tuple[object, ...] = ()
    shares_results: bool = False
    resends: frozenset[str] = frozenset()


@public("redouble.types")
class WorstCase(NamedTuple):
    """The most that one call can cost: the argument and the result of `Layer.worst_case`.

    calls: how often the function is called; infinite if only time limits it.
    seconds: how long the call takes; infinite if nothing limits the function.
    waiting: how many of these seconds are delays and waits for admission.
    """

    calls: float = 1
    seconds: float = inf
    waiting: float = 0.0

    def within(self, limit: float) -> WorstCase:
        """Return this worst case under a time limit."""
        return self._replace(seconds=min(self.seconds, limit), waiting=min(self.waiting, limit))

    def after(self, wait: float) -> WorstCase:
        """Return this worst case with a wait before it."""
        return self._replace(seconds=self.seconds + wait, waiting=self.waiting + wait)


class BlockingWorstCase(WorstCase):
    """The worst case of blocking code that runs on no worker.

    There a time limit interrupts nothing, and only prevents a call or a wait that would begin too late.
    """


class NoBlockingCode(BlockingWorstCase):
    """The result for a layer that cannot wrap a blocking function."""


def explain(pipeline: Layer, layers: Layers) -> str:
    """Return a drawing of the layers, outermost first, with the worst case of a call."""
    names = [*(type(layer).__name__ for layer in layers), "your function"]
    rows = [("   " * (depth - 1) + "└─ " if depth else "") + name for depth, name in enumerate(names)]
    width = max(len(row) for row in rows) + 2
    texts = [*map(_description, layers), ""]
    lines = [f"{row:<{width}}{text}".rstrip() for row, text in zip(rows, texts, strict=True)]
    return "\n".join([*lines, "", f"at worst: {_worst_cases(pipeline, layers)}"])


def _worst_cases(pipeline: Layer, layers: Layers) -> str:
    """Return the worst case in words; for blocking code separately if a limit does not interrupt it."""
    worst = combined_worst_case(layers, WorstCase())
    blocking = combined_worst_case(layers, BlockingWorstCase())
    summary = f"{_calls(worst)}, {_duration(worst)}"
    if isinstance(blocking, NoBlockingCode) or blocking == worst or _is_used_by_client(pipeline):
        return summary
    calls = "" if blocking.calls == worst.calls else f"{_calls(blocking)}, "
    why = "without a worker no limit interrupts an attempt"
    return f"{summary} in async code; in blocking code {calls}{_duration(blocking)}: {why}"


def _calls(worst: WorstCase) -> str:
    calls = "calls until time is up" if isinf(worst.calls) else f"{worst.calls:g} calls"
    return "1 call" if worst.calls == 1 else calls


def _duration(worst: WorstCase) -> str:
    if not isinf(worst.seconds):
        return format_seconds(worst.seconds)
    amount = "any amount" if isinf(worst.waiting) else format_seconds(worst.waiting)
    waiting = "" if not worst.waiting else f" and {amount} of waiting"
    return f"for as long as your function takes{waiting}"


# The policies of clients. A client ends its own waits at the limits of its policy, as a `Timeout` inside all
# layers would, so the layers see how such an attempt ended.
_client_policies: WeakSet[Layer] = WeakSet()


def used_by_client(policy: Layer) -> None:
    """Record that a client uses a policy: `check` and `explain` take that into account."""
    with suppress(TypeError):  # a layer of the user's that cannot be hashed
        _client_policies.add(policy)


def _is_used_by_client(policy: Layer) -> bool:
    with suppress(TypeError):
        return policy in _client_policies
    return False


def check(pipeline: Layer, layers: Layers) -> Iterator[str]:
    """Yield the known problems, each with its reason, outermost layer first."""
    traits = [_traits(layer) for layer in layers]  # validate all: `lint` reads traits of other layers
    seen: list[object] = []
    worst = WorstCase()
    if _is_used_by_client(pipeline):
        attempt = layers[max((i for i, own in enumerate(traits) if own.retries), default=0) :]
        worst = worst.within(combined_traits(attempt).each_call_limit)
    inside = [part for layer in layers for part in layer._parts()]
    for layer, own, problems in zip(layers, traits, lint(layers, (), (), worst), strict=True):
        yield from problems
        for part in layer._parts():
            del inside[0]
            if _traits(part).shares_results and (methods := combined_traits(tuple(inside)).resends):
                yield (
                    f"{type(part).__name__} around a policy that sends {', '.join(sorted(methods))} again: "
                    "such calls are not idempotent, so each has to be made, and equal ones would share one; "
                    "put it around functions that only read"
                )
        for state in own.shared:
            if any(state is other for other in seen):
                yield _shared_twice(state)
            seen.append(state)


def _shared_twice(state: object) -> str:
    """Return the problem of an object with state that two layers of one pipeline share."""
    kind = type(state).__name__
    if not hasattr(state, "spend"):
        return f"the same {kind} is in the pipeline twice: every call counts twice, and may wait for itself"
    own = "give one of them a budget of its own"
    if hasattr(state, "without_credit"):
        own += ", or the outer one budget.without_credit() if each call inside should count"
    return (
        f"the same {kind} in nested policies: it counts the call of the outer one only, and the retries of "
        f"both spend from it; {own}"
    )


# ---------------------------------------------------------------- the hooks of several layers


def describe(layers: Layers) -> str:
    """Return the descriptions of layers, in one line."""
    texts = ((type(layer).__name__, _description(layer)) for layer in layers)
    return " | ".join(f"{name} ({text})" if text else name for name, text in texts)


def combined_traits(layers: Layers) -> Traits:
    """Return the traits that layers have together."""
    traits = [_traits(layer) for layer in layers]
    return Traits(
        retries=any(own.retries for own in traits),
        concurrent=any(own.concurrent for own in traits),
        time_limit=min((own.time_limit for own in traits), default=inf),
        each_call_limit=min((own.each_call_limit for own in traits), default=inf),
        handles=traits[0].handles if len(traits) == 1 else None,
        shared=tuple(state for own in traits for state in own.shared),
        shares_results=any(own.shares_results for own in traits),
        resends=frozenset[str]().union(*(own.resends for own in traits)),
    )


def combined_worst_case(layers: Layers, inner: WorstCase) -> WorstCase:
    """Return the worst case of a call through layers, given that of the function inside."""
    for layer in reversed(layers):
        inner = _worst_case(layer, inner)
    return inner


def interrupts_blocking_code(layer: Layer) -> bool:
    """Return True if a layer limits the time of a blocking function: it has a worker."""
    worst = _worst_case(layer, BlockingWorstCase())
    return worst.seconds < inf and not isinstance(worst, NoBlockingCode)


def lint(layers: Layers, outer: Layers, inner: Layers, worst: WorstCase) -> list[list[str]]:
    """Return the problems of each layer, given the layers around them and the worst case inside."""
    reports: list[list[str]] = []
    for index in reversed(range(len(layers))):
        layer = layers[index]
        reports.insert(0, _problems(layer, (*outer, *layers[:index]), (*layers[index + 1 :], *inner), worst))
        worst = _worst_case(layer, worst)
    return reports


# --------------------------------------------------------------------------- validated hooks


@contextmanager
def _naming_hook(layer: Layer, hook: str) -> Generator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by {type(layer).__name__}.{hook}(), a hook of a layer")
        raise


def _wrong_result(layer: Layer, hook: str, value: object, wanted: str) -> TypeError:
    return TypeError(f"{type(layer).__name__}.{hook}() returned {value!r}: return {wanted}")


def _call_hook(layer: Layer, hook: str, kind: type[T], wanted: str, *args: object) -> T:
    with _naming_hook(layer, hook):
        result: object = getattr(layer, hook)(*args)
    if not isinstance(result, kind):
        raise _wrong_result(layer, hook, result, wanted)
    return result


def _description(layer: Layer) -> str:
    return _call_hook(layer, "describe", str, 'a string, or "" for no description')


def _traits(layer: Layer) -> Traits:
    return _call_hook(layer, "traits", Traits, "redouble.types.Traits(...)")


def _worst_case(layer: Layer, inner: WorstCase) -> WorstCase:
    wanted = "a redouble.types.WorstCase, such as the one it is given"
    worst = _call_hook(layer, "worst_case", WorstCase, wanted, inner)
    if isinstance(worst, NoBlockingCode) or not isinstance(inner, BlockingWorstCase):
        return worst
    return type(inner)(*worst)  # a hook need not return the type that it is given


def _problems(layer: Layer, outer: Layers, inner: Layers, worst: WorstCase) -> list[str]:
    sentences: list[object] | None = None
    with _naming_hook(layer, "lint"):
        result: object = layer.lint(outer, inner, worst)
        if isinstance(result, Iterable) and not isinstance(result, str):  # a string would yield characters
            result = sentences = list(cast("Iterable[object]", result))
    if sentences is None or not all(isinstance(sentence, str) for sentence in sentences):
        raise _wrong_result(layer, "lint", result, "a list of sentences, () for none; or yield them")
    return cast("list[str]", sentences)
