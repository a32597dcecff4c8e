"""Policies from settings with the key names of qubit-retry, for projects that already have such settings.

In qubit-retry, durations are whole milliseconds, every error is retried, and an absent key is inherited. The
name of the delay strategy determines the keys that it requires; without a name, the first strategy that has
one of its keys present is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from redouble._engine.backoff import Backoff, _make
from redouble._engine.worker import Worker
from redouble._failures.verdict import On
from redouble._internal.public import public
from redouble._internal.validation import instance
from redouble._layers.retry.retry import Retry
from redouble.config._document_path import DocPath, nearest, short_repr
from redouble.config._options.values import Flag, Number, Text, Value, Whole
from redouble.errors import AttemptTimeout, ConfigError

__all__ = ["from_qubit"]


MOST = 2**64 - 1  # the largest u64 of Rust
MILLIS = Whole(0, "write milliseconds, as a whole number, 0 or more", MOST)
POSITIVE = Whole(1, "write milliseconds, as a whole number, 1 or more", MOST)

KEYS: dict[str, Value] = {
    "max_attempts": Whole(1),
    "max_operation_elapsed_millis": MILLIS,
    "max_operation_elapsed_unlimited": Flag(),
    "max_total_elapsed_millis": MILLIS,
    "max_total_elapsed_unlimited": Flag(),
    "attempt_timeout_millis": POSITIVE,
    "attempt_timeout_policy": Text(),
    "worker_cancel_grace_millis": MILLIS,
    "delay": Text(),
    "delay_strategy": Text(),
    "fixed_delay_millis": POSITIVE,
    "random_min_delay_millis": POSITIVE,
    "random_max_delay_millis": POSITIVE,
    "exponential_initial_delay_millis": POSITIVE,
    "exponential_max_delay_millis": POSITIVE,
    "exponential_multiplier": Number(low=1),
    "jitter_factor": Number(high=1),
}

# The keys of each strategy, with the defaults that apply if the settings do not name a strategy.
STRATEGIES: dict[str, dict[str, float]] = {
    "fixed": {"fixed_delay_millis": 1000},
    "random": {"random_min_delay_millis": 1000, "random_max_delay_millis": 10_000},
    "exponential": {
        "exponential_initial_delay_millis": 1000,
        "exponential_max_delay_millis": 60_000,
        "exponential_multiplier": 2.0,
    },
}
SPELLED = {"none": "none", **{name: name for name in STRATEGIES}, "exponential_backoff": "exponential"}

USUAL = Retry(on=Exception, attempts=5, backoff=Backoff.exponential(1).maximum(60), give_up_after=None)


@dataclass(frozen=True)
class StopOnTimeout:
    """A failure rule that stops retrying after an `AttemptTimeout`."""

    def __call__(self, error: Exception, /) -> bool | None:
        """Return False, do not retry, for an `AttemptTimeout`; None, no verdict, for any other error."""
        return False if isinstance(error, AttemptTimeout) else None


ABORT = StopOnTimeout()


class QubitSettings:
    """Validated settings, by key without the prefix."""

    def __init__(self, values: Mapping[str, object], prefix: str) -> None:
        self._prefix = prefix
        self.given: dict[str, Any] = {}
        for name, value in DocPath().table(values).items():
            key = name.removeprefix(prefix)
            if not name.startswith(prefix):
                continue
            if key not in KEYS:
                raise self.error(
                    key, f"there is no such key (its value: {short_repr(value)}); {nearest(key, KEYS)}"
                )
            self.given[key] = KEYS[key].read(value, self._at(key))

    def error(self, key: str, message: str) -> ConfigError:
        """Return a `ConfigError` with this message at this key."""
        return self._at(key).error(message)

    def word(self, key: str, words: Mapping[str, str], what: str) -> str:
        """Return the entry of ``words`` for the text at a key, ignoring case; raise `ConfigError` if none."""
        word: str = self.given[key].strip().lower()
        if word not in words:
            raise self.error(key, f"unsupported {what} {short_repr(self.given[key])}; {nearest(word, words)}")
        return words[word]

    def _at(self, key: str) -> DocPath:
        return DocPath(tuple(f"{self._prefix}{key}".split(".")))


@public("redouble.config")
def from_qubit(values: Mapping[str, object], *, defaults: Retry | None = None, prefix: str = "") -> Retry:
    """Build a policy from the keys of qubit-retry: ``max_attempts``, ``attempt_timeout_millis``, ...

    defaults: the policy whose options apply where a key is absent; None for the defaults of qubit-retry: 5
        attempts, and delays of 1 s that double up to 60 s.
    prefix: read only the keys that begin with it, such as ``"retry."``.
    """
    instance(defaults, "defaults", Retry | None, "a Retry, or None")
    instance(prefix, "prefix", str, "a text, such as 'retry.'")
    usual = USUAL if defaults is None else defaults
    settings = QubitSettings(values, prefix)
    given, changed = settings.given, dict[str, Any]()
    if "max_attempts" in given:
        changed["attempts"] = given["max_attempts"]
    for key, option in (("max_operation_elapsed", "work_timeout"), ("max_total_elapsed", "timeout")):
        if given.get(f"{key}_unlimited"):
            changed[option] = None
        elif f"{key}_millis" in given:
            changed[option] = given[f"{key}_millis"] / 1000
    if "attempt_timeout_millis" in given:
        changed["attempt_timeout"] = given["attempt_timeout_millis"] / 1000
    if "attempt_timeout_policy" in given:
        changed["on"] = _on(settings, usual)
    if "worker_cancel_grace_millis" in given:
        grace = given["worker_cancel_grace_millis"] / 1000
        changed["worker"] = replace(usual.worker or Worker(), grace=grace)
    if (backoff := _backoff(settings, usual)) is not None:
        changed["backoff"] = backoff
    return replace(usual, **changed)


def _on(settings: QubitSettings, usual: Retry) -> On:
    key = "attempt_timeout_policy"
    wanted = settings.word(key, {"retry": "retry", "abort": "abort"}, "timeout policy")
    if "attempt_timeout_millis" not in settings.given and usual.attempt_timeout is None:
        raise settings.error(key, f"{wanted!r} needs a limit of the attempts: set attempt_timeout_millis too")
    on: object = usual.on
    before = cast("tuple[object, ...]", on) if isinstance(on, tuple) else (on,)
    rules: list[Any] = [rule for rule in before if rule != ABORT]
    return [ABORT, *rules] if wanted == "abort" else rules


def _backoff(settings: QubitSettings, usual: Retry) -> Backoff | None:
    """Return the backoff, or None if no setting concerns it."""
    base, factor = _base(settings), settings.given.get("jitter_factor")
    if base is None and factor is None:
        return None
    inherited: object = usual.backoff
    before = inherited if isinstance(inherited, Backoff) else None
    if base is None:
        if isinstance(inherited, Mapping):
            raise settings.error(
                "jitter_factor", "the inherited backoff differs by kind of failure: set a delay too"
            )
        base = Backoff.of(cast("Iterable[float]", inherited)) if before is None else _without_jitter(before)
    elif factor is None and before is not None:
        factor = _jitter_of(before)
    return base.jitter(factor) if factor else base


def _base(settings: QubitSettings) -> Backoff | None:
    millis = settings.given
    key = next((key for key in ("delay", "delay_strategy") if key in millis), None)
    if key is None:
        name = next((name for name, keys in STRATEGIES.items() if keys.keys() & millis.keys()), None)
        if name is None:
            return None
        millis = {**STRATEGIES[name], **millis}
    else:
        name = settings.word(key, SPELLED, "delay strategy")
        for needed in STRATEGIES.get(name, ()):
            if needed not in millis:
                raise settings.error(needed, f"missing: {key} = {name!r} needs it")
    if name in ("none", "fixed"):
        return Backoff.constant(0 if name == "none" else millis["fixed_delay_millis"] / 1000)
    low, high, *_ = STRATEGIES[name]
    if millis[low] > millis[high]:
        raise settings.error(high, f"{millis[high]} is below {low}, which is {millis[low]}")
    first, last = millis[low] / 1000, millis[high] / 1000
    if name == "random":
        return Backoff.random(first, last)
    return Backoff.exponential(first, millis["exponential_multiplier"]).maximum(last)


def _jitter_of(backoff: Backoff) -> float:
    stage, (factor, _) = backoff._stages[-1] if backoff._stages else ("", (0.0, 0.0))
    return factor if stage == "jitter" else 0.0


def _without_jitter(backoff: Backoff) -> Backoff:
    name, args = backoff._series
    stages = backoff._stages[:-1] if _jitter_of(backoff) else backoff._stages
    return _make(name, *args, source=backoff._source, stages=stages)
