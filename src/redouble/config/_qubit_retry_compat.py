"""Policies from settings with the key names of qubit-retry, for projects that already have such settings.

In qubit-retry, durations are whole milliseconds, every error is retried but the failure of a worker to start
or to end, and an absent key is inherited. The name of the delay strategy determines the keys that it
requires; without a name, the first strategy that has one of its keys present is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

from redouble._engine.backoff import Backoff, _make
from redouble._engine.worker import Worker
from redouble._failures.verdict import On
from redouble._internal.public import public
from redouble._internal.validation import instance, nearest
from redouble._layers.retry.retry import Retry
from redouble.config._document_path import DocPath, rewrite, short_repr
from redouble.config._options.backoff import BACKOFFS
from redouble.config._options.catalogue import RETRY
from redouble.config._options.error_names import STOP_ON_TIMEOUT, STOP_ON_WORKER_FAILURE
from redouble.config._options.values import Flag, Number, Text, Value, Whole
from redouble.errors import ConfigError

MOST = 2**64 - 1  # the largest u64 of Rust
MILLIS = Whole(0, "write milliseconds, as a whole number, 0 or more", MOST)
POSITIVE = Whole(1, "write milliseconds, as a whole number, 1 or more", MOST)


class Setting(NamedTuple):
    """The type of a setting, the option of `Retry` or of the backoff that it sets, and a default.

    The default is for the settings of a delay strategy; it applies if the strategy is not named.
    """

    kind: Value
    option: str = ""
    usual: float = 0


KEYS = {
    "max_attempts": Setting(Whole(1), "attempts"),
    "max_operation_elapsed_millis": Setting(MILLIS, "work_timeout"),
    "max_operation_elapsed_unlimited": Setting(Flag(), "work_timeout"),
    "max_total_elapsed_millis": Setting(MILLIS, "timeout"),
    "max_total_elapsed_unlimited": Setting(Flag(), "timeout"),
    "attempt_timeout_millis": Setting(POSITIVE, "attempt_timeout"),
    "attempt_timeout_policy": Setting(Text()),
    "worker_cancel_grace_millis": Setting(MILLIS),
    "delay": Setting(Text()),
    "delay_strategy": Setting(Text()),
    "fixed_delay_millis": Setting(POSITIVE, "delay", 1000),
    "random_min_delay_millis": Setting(POSITIVE, "low", 1000),
    "random_max_delay_millis": Setting(POSITIVE, "high", 10_000),
    "exponential_initial_delay_millis": Setting(POSITIVE, "initial", 1000),
    "exponential_max_delay_millis": Setting(POSITIVE, "maximum", 60_000),
    "exponential_multiplier": Setting(Number(low=1), "factor", 2),
    "jitter_factor": Setting(Number(high=1)),
}
STRATEGIES = {
    name: [key for key in KEYS if key.startswith(name)] for name in ("fixed", "random", "exponential")
}

# Every error is retried but that of a worker; a panic is no `Exception`, so no rule retries it either.
USUAL = Retry(
    on=[STOP_ON_WORKER_FAILURE, Exception],
    attempts=5,
    backoff=Backoff.exponential(1).maximum(60),
    give_up_after=None,
)


@public("redouble.config")
def from_qubit(values: Mapping[str, object], *, defaults: Retry | None = None, prefix: str = "") -> Retry:
    """Build a policy from the keys of qubit-retry: ``max_attempts``, ``attempt_timeout_millis``, ...

    defaults: the policy whose options apply where a key is absent; None for the defaults of qubit-retry: 5
        attempts, and delays of 1 s that double up to 60 s, after any error but that of a worker.
    prefix: read only the keys that begin with it, such as ``"retry."``.
    """
    instance(defaults, "defaults", Retry | None, "a Retry, or None")
    instance(prefix, "prefix", str, "a text, such as 'retry.'")
    usual = USUAL if defaults is None else defaults
    table = DocPath().table(values)
    try:
        settings = {key.removeprefix(prefix): table[key] for key in table if key.startswith(prefix)}
        return replace(usual, **_options(settings, usual))
    except ConfigError as error:
        rewrite(error, path=f"{prefix}{error.path}")
        raise


def _options(settings: Mapping[str, object], usual: Retry) -> dict[str, Any]:
    """Return the options of `Retry` that some settings change."""
    given: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in KEYS:
            *parents, last = key.split(".")
            raise DocPath(tuple(parents)).unknown_key(last, value, KEYS)
        given[key] = KEYS[key].kind.read(value, DocPath((key,)))
    changed: dict[str, Any] = {}
    for key, setting in KEYS.items():
        if setting.option in RETRY.options and given.get(key, False) is not False:  # True: unlimited
            changed[setting.option] = None if given[key] is True else _argument(key, given[key])
    if "attempt_timeout_policy" in given:
        changed["on"] = _on(given, usual)
    if "worker_cancel_grace_millis" in given:
        grace = given["worker_cancel_grace_millis"] / 1000
        changed["worker"] = replace(usual.worker or Worker(), grace=grace)
    if (backoff := _backoff(given, usual.backoff)) is not None:
        changed["backoff"] = backoff
    return changed


def _argument(key: str, value: float) -> float:
    """Return the argument for the option of a setting: durations in seconds."""
    return value / 1000 if key.endswith("_millis") else value


def _word(given: Mapping[str, Any], key: str, what: str, words: Iterable[str]) -> str:
    word: str = given[key].strip().lower()
    if word not in words:
        raise DocPath((key,)).error(f"unsupported {what} {short_repr(given[key])}; {nearest(word, words)}")
    return word


def _on(given: Mapping[str, Any], usual: Retry) -> On:
    key = "attempt_timeout_policy"
    wanted = _word(given, key, "timeout policy", ("retry", "abort"))
    if "attempt_timeout_millis" not in given and usual.attempt_timeout is None:
        needs = "needs a limit of the attempts: set attempt_timeout_millis too"
        raise DocPath((key,)).error(f"{wanted!r} {needs}")
    on: object = usual.on
    before = cast("tuple[object, ...]", on) if isinstance(on, tuple) else (on,)
    rules: list[Any] = [rule for rule in before if rule != STOP_ON_TIMEOUT]
    return [STOP_ON_TIMEOUT, *rules] if wanted == "abort" else rules


def _backoff(given: Mapping[str, Any], usual: object) -> Backoff | None:
    """Return the backoff, or None if no setting concerns it."""
    base, factor = _base(given), given.get("jitter_factor")
    if base is None:
        if factor is None:
            return None
        if isinstance(usual, Mapping):
            message = "the inherited backoff differs by kind of failure: set a delay too"
            raise DocPath(("jitter_factor",)).error(message)
        base, _ = _split(Backoff.of(cast("Iterable[float]", usual)))
    elif factor is None and isinstance(usual, Backoff):
        _, factor = _split(usual)
    return base.jitter(factor) if factor else base


def _base(given: Mapping[str, Any]) -> Backoff | None:
    named_by = next((key for key in ("delay", "delay_strategy") if key in given), None)
    if named_by is None:
        name = next((name for name, keys in STRATEGIES.items() if not given.keys().isdisjoint(keys)), None)
        if name is None:
            return None
    else:
        names = ("none", *STRATEGIES, "exponential_backoff")
        name = _word(given, named_by, "delay strategy", names).removesuffix("_backoff")
        if name == "none":
            return Backoff.constant(0)
        for key in STRATEGIES[name]:
            if key not in given:
                raise DocPath((key,)).error(f"missing: {named_by} = {name!r} needs it")
    values = {key: given.get(key, KEYS[key].usual) for key in STRATEGIES[name]}
    options = {KEYS[key].option: _argument(key, value) for key, value in values.items()}
    if name == "fixed":
        return Backoff.constant(**options)
    low, high, *_ = STRATEGIES[name]
    if values[low] > values[high]:
        raise DocPath((high,)).error(f"{values[high]} is below {low}, which is {values[low]}")
    backoff: Backoff = BACKOFFS.tables[name].build(**options)
    return backoff


def _split(backoff: Backoff) -> tuple[Backoff, float]:
    """Return a backoff without the jitter at its end, and the factor of that jitter."""
    if not backoff._stages or backoff._stages[-1][0] != "jitter":
        return backoff, 0.0
    *stages, (_, (factor, _)) = backoff._stages
    name, args = backoff._series
    return _make(name, *args, source=backoff._source, stages=tuple(stages)), factor
