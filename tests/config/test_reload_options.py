"""A reload changes each option in place, by file and by environment; the layer keeps what it has learned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, cast

import pytest

from redouble import SYSTEM, Pipeline, Timeout, errors, policies
from redouble.config import from_mapping, load, register, reload, to_mapping
from redouble.testing import virtual_time
from tests.support.config.documents import is_valid
from tests.support.fakes import Boom, nothing


class Kind(NamedTuple):
    """A type of layer: options before a reload, calls that teach it something, and what it then knows."""

    base: dict[str, Any]
    teach: Callable[[Any], object]
    learned: Callable[[Any], object]


def accepted(result: object) -> bool:
    return bool(result)


register("reload.accepted", accepted)


def fail() -> None:
    raise Boom


def failing(layer: Any) -> None:
    for _ in range(4):
        with suppress(Boom, errors.Rejected):
            layer.call(fail)


def calling(layer: Any) -> None:
    async def main() -> None:
        for _ in range(40):
            await layer.call(nothing)

    asyncio.run(main())


def remembering(layer: Any) -> None:
    layer(nothing_to_do)()


def admitting(gate: Any) -> None:
    gate.admit(0.0)


def has_rate(gate: Any) -> bool:
    return gate.snapshot()["rate"] is not None


def latencies(timeout: Any) -> int:
    recorded: int = timeout._learned._latencies._current_total
    return recorded


def snapshot(*keys: str) -> Callable[[Any], object]:
    """Return a reader of values of the snapshot."""
    return lambda layer: [layer.snapshot()[key] for key in keys]


def nothing_to_do() -> str:
    return "a result"


LAYERS = "REDOUBLE_PIPELINES__CHECKOUT__LAYERS__"
SHARES = {"users": 0.5, "batch": 0.25}
KINDS = {
    "bulkhead": Kind({"limit": 4, "wait": 0, "shares": SHARES}, admitting, snapshot("in_use")),
    "circuit_breaker": Kind(
        {"ratio": 1, "until": "http", "slow": "1s", "probes": 4, "name": "db"}, failing, snapshot("failures")
    ),
    "circuit_breaker share": Kind({"ratio": 0.5, "calls": 20}, failing, snapshot("failures")),
    "rate_limit": Kind({"rate": 0.1, "burst": 9, "cost": 1.5, "wait": 0}, failing, snapshot("available")),
    "rate_limit window": Kind({"rate": 9, "cost": 1.5, "window": "sliding"}, failing, snapshot("available")),
    "rate_limit shares": Kind({"rate": 5, "shares": SHARES}, failing, snapshot("available")),
    "adaptive_rate": Kind({"on": "Exception", "until": "http", "wait": 0}, failing, has_rate),
    "adaptive_concurrency": Kind(
        {"on": "Exception", "until": "http", "queue": 5, "window": "1ms", "shares": SHARES},
        failing,
        snapshot("limit"),
    ),
    "throttle": Kind({"until": "http", "shares": SHARES}, failing, snapshot("requests", "accepts")),
    "timeout": Kind(
        {"seconds": 9, "multiple": 1, "minimum": 20},
        calling,
        latencies,
    ),
    "hedge": Kind({"max_extra_load": 0.5, "until": "http"}, calling, snapshot("calls")),
    "hedge delays": Kind({"delay": [3, 4], "hedges": 3}, calling, snapshot("calls")),
    "fallback": Kind({"value": 1, "until": "http"}, remembering, snapshot()),
    "stale_fallback": Kind({"max_age": "1m"}, remembering, snapshot("cached")),
}
OPTIONS: list[tuple[str, str, Any, str]] = [
    # the type, the option, its value in the document, and the same in an environment variable
    ("bulkhead", "limit", 8, "8"),
    ("bulkhead", "order", "lifo", "lifo"),
    ("bulkhead", "shares", {"users": 0.25}, ""),
    ("bulkhead", "priority", "batch", "batch"),
    ("circuit_breaker", "until", "reload.accepted", "reload.accepted"),
    ("circuit_breaker", "slow_ratio", 0.5, "0.5"),
    ("circuit_breaker share", "calls", 50, "50"),
    ("circuit_breaker", "cooldown", [1, 2.5], "1,2500ms"),
    ("circuit_breaker", "probe_ratio", 0.25, "0.25"),
    ("rate_limit", "cost", 2, "2"),
    ("rate_limit window", "cost", 0.5, "0.5"),
    ("rate_limit window", "rate", 5.5, "5.5"),
    ("rate_limit shares", "shares", {"users": 0.25}, ""),
    ("rate_limit shares", "priority", "users", "users"),
    ("adaptive_rate", "until", "reload.accepted", "reload.accepted"),
    ("adaptive_rate", "least", 2, "2"),
    ("adaptive_concurrency", "until", "reload.accepted", "reload.accepted"),
    ("adaptive_concurrency", "queue", 7, "7"),
    ("adaptive_concurrency", "wait", 0.25, "250ms"),
    ("adaptive_concurrency", "order", "adaptive", "adaptive"),
    ("adaptive_concurrency", "shares", {"users": 0.25}, ""),
    ("adaptive_concurrency", "priority", "batch", "batch"),
    ("throttle", "until", "reload.accepted", "reload.accepted"),
    ("throttle", "shares", {"users": 0.25}, ""),
    ("throttle", "priority", "batch", "batch"),
    ("timeout", "seconds", 5, "5s"),
    ("timeout", "multiple", 3, "3"),
    ("timeout", "quantile", 0.9, "0.9"),
    ("timeout", "least", 0.5, "500ms"),
    ("timeout", "initial", 2, "2"),
    ("timeout", "minimum", 30, "30"),
    ("hedge delays", "delay", [1, 2.5], "1,2500ms"),
    ("hedge", "until", "reload.accepted", "reload.accepted"),
    ("hedge", "minimum", 30, "30"),
    ("hedge", "shortest", 0.01, "10ms"),
    ("hedge", "longest", 3, "3s"),
    ("hedge", "hedges", 2, "2"),
    ("fallback", "until", "reload.accepted", "reload.accepted"),
    ("fallback", "value", "other", "other"),
    ("stale_fallback", "until", "reload.accepted", "reload.accepted"),
    ("stale_fallback", "max_age", 90, "1.5m"),
    ("stale_fallback", "most", 7, "7"),
]


def document(kind: str, **changed: Any) -> dict[str, Any]:
    table = {"type": kind.partition(" ")[0], **KINDS[kind].base, **changed}
    return {"pipelines": {"checkout": {"layers": [table]}}}


def only_layer(config: Any) -> Any:
    [layer] = config.pipelines["checkout"].layers
    return layer


@pytest.fixture
def frozen() -> Iterator[None]:
    """Let the time stand still between the calls."""
    with virtual_time():
        yield


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize(("kind", "option", "value", "_text"), OPTIONS)
def test_a_reload_changes_an_option_in_place(kind: str, option: str, value: Any, _text: str) -> None:
    config = load(document(kind), environ=None)
    layer = only_layer(config)
    KINDS[kind].teach(layer)
    before = KINDS[kind].learned(layer)
    changed = document(kind, **{option: value})
    assert is_valid(changed)
    result = reload(changed)
    assert (result.error, result.changed) == (None, ("pipelines.checkout",))
    kept = only_layer(load(changed, environ=None))
    assert kept is layer
    if option not in ("cost", "calls") and (kind, option) != ("rate_limit window", "rate"):
        assert KINDS[kind].learned(layer) == before
    assert to_mapping(kept) == to_mapping(only_layer(from_mapping(changed)))


@pytest.mark.parametrize(("kind", "option", "value", "text"), [row for row in OPTIONS if row[3]])
def test_the_environment_sets_the_same(kind: str, option: str, value: Any, text: str) -> None:
    plain = only_layer(from_mapping(document(kind, **{option: value})))
    name = f"{LAYERS}0__{option.upper()}"
    assert to_mapping(only_layer(from_mapping(document(kind), environ={name: text}))) == to_mapping(plain)


@pytest.mark.parametrize(("kind", "option", "value", "text"), OPTIONS)
def test_an_invalid_value_is_reported_by_its_path(kind: str, option: str, value: Any, text: str) -> None:
    if (kind, option) == ("fallback", "value"):
        return  # anything may be returned
    wrong = document(kind, **{option: {"no": "such"}})
    with pytest.raises(errors.ConfigError) as raised:
        from_mapping(wrong)
    assert raised.value.path.startswith(f"pipelines.checkout.layers.0.{option}")
    assert not is_valid(wrong)


def test_a_variable_names_an_item_of_a_list_by_its_number() -> None:
    layers: list[Any] = [{"type": "timeout", "seconds": 9}, "gates.db", {"type": "hedge", "delay": [1, 2]}]
    whole = {"gates": {"db": {"type": "bulkhead", "limit": 1}}, "pipelines": {"checkout": {"layers": layers}}}
    changed = {f"{LAYERS}0__SECONDS": "5s", f"{LAYERS}2__HEDGES": "2", f"{LAYERS}2__DELAY__1": "3"}
    timeout, _, hedge = from_mapping(whole, environ=changed).pipelines["checkout"].layers
    assert (to_mapping(timeout)["seconds"], to_mapping(hedge)["delay"]) == (5, [1, 3])
    assert layers[0] == {"type": "timeout", "seconds": 9}


@pytest.mark.parametrize(
    ("element", "path", "message"),
    [
        ("1__SECONDS", "pipelines.checkout.layers", "has no item 1, and .*LAYERS__1__SECONDS sets one"),
        ("LAST__SECONDS", "pipelines.checkout.layers", "has no keys"),
        ("00__SECONDS", "pipelines.checkout.layers", "has no item 00"),
        ("0__SECOND", f"{LAYERS}0__SECOND", "did you mean 'seconds'"),
        ("0__SECONDS", f"{LAYERS}0__SECONDS", "'x' is no duration"),
        ("0__SECONDS__MORE", "pipelines.checkout.layers.0.seconds", "9 has no keys"),
    ],
)
def test_a_variable_for_an_item_that_is_not_there(element: str, path: str, message: str) -> None:
    variable = {f"{LAYERS}{element}": "x"}
    layers = [{"type": "timeout", "seconds": 9}]
    with pytest.raises(errors.ConfigError, match=message) as raised:
        from_mapping({"pipelines": {"checkout": {"layers": layers}}}, environ=variable)
    assert raised.value.path == path


@pytest.mark.usefixtures("frozen")
def test_a_learned_limit_applies_its_new_multiple_at_once() -> None:
    load(document("timeout"), environ=None)
    checkout = policies("checkout")

    @checkout
    async def answer() -> None:
        await SYSTEM.asleep(0.5)

    async def main() -> None:
        for _ in range(20):
            await answer()

    asyncio.run(main())
    [timeout] = cast("Pipeline", checkout.current).layers
    assert isinstance(timeout, Timeout)
    assert timeout.limit_of() == pytest.approx(0.5, rel=0.1)
    assert reload(document("timeout", multiple=4)).ok
    assert timeout.limit_of() == pytest.approx(2, rel=0.1)
    assert "4 times what" in policies("checkout").explain()


@pytest.mark.usefixtures("frozen")
def test_a_decorated_function_costs_what_the_reload_says() -> None:
    table = {"type": "rate_limit", "rate": 1, "burst": 9, "cost": 2, "wait": 0}
    gate: Any = load({"gates": {"db": table}}, environ=None).gates["db"]
    work = gate(nothing_to_do)
    work()
    assert reload({"gates": {"db": {**table, "cost": 4}}}).ok
    work()
    assert gate.snapshot()["available"] == 3
