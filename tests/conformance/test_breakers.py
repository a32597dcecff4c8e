"""Circuit breakers: when they open and close, at httpware, Polly, failsafe-go, gobreaker and others."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Backoff
from tests.conformance.circuits import check, in_every_colour, row, run

NEVER: dict[str, Any] = {"ratio": 1, "minimum": 10**6}  # never opens, but counts
F5, S24 = "F " * 5, "S " * 24

HTTPWARE = [
    row("HW-CB-01", "500 500 500 rejected:30 open", failures=3, reached=3),
    row("HW-CB-02", "500 500 200 500 500 200 closed", failures=3, reached=6),
    row("HW-CB-03", "404 429 500 429 500 404 closed", failures=2, reached=6),
    row("HW-CB-06", "foreign foreign closed", failures=1, reached=2),
    row(
        "HW-CB-07",
        "500 500 later:10 rejected:20 later:20 200 closed",
        failures=2,
        cooldown=30,
        reached=3,
        events="opened rejected half_open closed",
    ),
    row("HW-CB-08", "500 500 later:10 500 rejected:10 open", failures=2, cooldown=10, reached=3),
    row(
        "HW-CB-09",
        "500 500 later:5 200 500 later:5 200 500 rejected:5 open",
        failures=2,
        probes=2,
        cooldown=5,
        reached=6,
    ),
    row("HW-CB-10", "500 later:5 foreign 200 closed", failures=1, cooldown=5, reached=3),
    row("HW-CB-11", "500 later:1 start rejected finish:200 closed", failures=1, cooldown=1),
    row(
        "HW-CB-12",
        "500 200 200 500 rejected:30 open",
        ratio=0.5,
        window=10,
        minimum=4,
        failures=1,
        reached=4,
    ),
]


def after_attempts(attempts: int) -> float:
    """Return a duration of a break that shows how often a probe has failed."""
    return attempts + 1


POLLY = [
    row("cb.should_break.10", "F F " + "S " * 8 + "open", ratio=0.1, minimum=10),
    row("cb.should_break.11", "S " * 9 + "closed F F open", ratio=0.15, minimum=10),
    row("cb.should_break.9", "F " + "S " * 8 + "closed", ratio=0.1, minimum=10),
    row(
        "cb.polly_rolling_window.window_respected",
        "F S later:2 failed:1/2 F S later:2 failed:2/4 S S later:2 failed:2/6 S S later:2 failed:2/8 "
        "S S later:2 failed:1/8 later:2 failed:0/6",
        window=10,
        **NEVER,
    ),
    row(
        "cb.polly_rolling_window.capacity",
        "S later:1 " * 10 + "failed:0/9 later:1 failed:0/8",
        window=10,
        **NEVER,
    ),
    row("cb.polly_rolling_window.all_expired", "S S later:10 failed:0/0", window=10, **NEVER),
    row(
        "cb.polly_transitions.success-closes",
        "F F open later:30 S closed failed:0/0",
        failures=2,
        events="opened half_open closed",
    ),
    row(
        "cb.polly_transitions.isolated",
        "start isolate finish:S isolated rejected",
        events="isolated rejected",
    ),
    row("cb.polly_transitions.breaks", "F closed F open", failures=2, events="opened"),
    row("cb.polly_transitions.late-failure", "start F open finish:F open", failures=1, events="opened"),
    # In Polly the second rejection has a retry_after; here it has none, as the end of the probe is unknown.
    row("cb.polly_transitions.probing-deviates", "F later:30 start half_open rejected", failures=1),
    # Polly closes on every result that is no failure; here an error without a verdict changes nothing.
    row("cb.polly_transitions.unhandled-deviates", "F later:30 foreign half_open S closed", failures=1),
    row("cb.polly_transitions.cancelled-deviates", "F later:30 cancelled half_open S closed", failures=1),
    # If a probe never ends, Polly rejects all further calls.
    row(
        "cb.polly_transitions.probe-never-returns",
        "F later:30 start rejected later:29 rejected later:1 S closed finish:F closed",
        failures=1,
    ),
    row(
        "cb.polly_break_duration_generator",
        "F rejected:1 later:1 F rejected:2 later:2 F rejected:3 later:3 F rejected:4 later:4 F rejected:5 "
        "later:5 S F rejected:1 later:1 F rejected:2 later:2 F rejected:3",
        failures=1,
        cooldown=after_attempts,
    ),
    # Without one, all breaks have the given cooldown.
    row(
        "cb.polly_break_duration_generator-constant",
        "F rejected:9 later:9 F rejected:9 later:9 F rejected:9 later:9 F rejected:9 later:9 F rejected:9 "
        "later:9 S F rejected:9 later:9 F rejected:9 later:9 F rejected:9",
        failures=1,
        cooldown=9,
    ),
]


def probes(count: int, ratio: float) -> dict[str, Any]:
    """Return the options of a half-open state in which a share of the probes decides."""
    return {"probes": count, "probe_ratio": ratio}


FAILSAFE = [
    row("cb.failsafe_go.closed-1", "F open", failures=1),
    row("cb.failsafe_go.closed-3-of-3", "F S F F F open", failures=3),
    row("cb.failsafe_go.closed-2-of-3", "F S closed", ratio=0.66, minimum=3),
    row("cb.failsafe_go.closed-2-of-3-reached", "F S F open", ratio=0.66, minimum=3),
    row("cb.failsafe_go.closed-3-of-4", "S F S F S F S F S F closed", ratio=0.75, minimum=4),
    row("cb.failsafe_go.closed-2-of-2", "S F S F S F S F closed", failures=2),
    row("cb.failsafe_go.half-open-1", "F later:30 S closed", failures=1),
    row("cb.failsafe_go.half-open-3-of-3", "F F F later:30 F open", failures=3),
    row("cb.failsafe_go.half-open-ratio", "F F F later:30 F open", ratio=0.66, minimum=3),
    row("cb.failsafe_go.half-open-2-successes", "F F later:30 S S half_open", failures=2, probes=3),
    row("cb.failsafe_go.half-open-3-successes", "F F later:30 S S S closed", failures=2, probes=3),
    row("cb.failsafe_go.half-open-2-of-4", "F later:30 S F open", failures=1, probes=2),
    row("cb.failsafe_go.half-open-S-F", "F later:30 S F open", failures=1, probes=3),
    row("cb.failsafe_go.half-open-F", "F F F later:30 F open", failures=3, probes=3),
    # Thresholds of the state half open: successes or failures of so many probes are a share that failed.
    row("cb.failsafe_go.half-open-3-3-F-F-F", "F later:30 F F half_open F open", failures=1, **probes(3, 1)),
    row("cb.failsafe_go.half-open-3-3-F-S", "F later:30 F S closed", failures=1, **probes(3, 1)),
    row("cb.failsafe_go.half-open-2-3-F-S-F", "F later:30 F S F open", failures=1, **probes(3, 0.66)),
    row("cb.failsafe_go.half-open-2-3-F-S-S", "F later:30 F S S closed", failures=1, **probes(3, 0.66)),
    row("cb.failsafe_go.half-open-S-F-S", "F later:30 S F S half_open", failures=1, **probes(4, 0.5)),
    row("cb.failsafe_go.half-open-success-2-3", "F later:30 F S S closed", failures=1, **probes(3, 0.66)),
    row("cb.failsafe_go.half-open-success-2-4", "F later:30 S F F F open", failures=1, **probes(4, 0.75)),
    # failsafe-go uses the failure threshold of the closed state if there is none; here one failure opens it.
    row("cb.failsafe_go.half-open-F-S-deviates", "F F F later:30 F open rejected:30", failures=3),
    row("cb.failsafe_go.half-open-S-F-S-deviates", "F F F later:30 S F open", failures=3, probes=3),
    row(
        "cb.failsafe_go_timed_stats",
        f"later:0.9 {'S ' * 10}{'F ' * 40}failed:40/50 later:0.1 {'S ' * 10}failed:40/60 "
        f"later:1.5 {'F ' * 20}failed:60/80 later:0.6 {F5 * 4}{'S ' * 5}failed:80/105 "
        f"later:2.3 {'S ' * 8}failed:40/53 later:1.9 {F5}failed:5/13 "
        f"later:15.2 failed:0/0 later:0.6 {'S ' * 3}failed:0/3",
        window=4,
        **NEVER,
    ),
]

SLOW_RATE: dict[str, Any] = {"ratio": 1, "minimum": 5, "slow": 4, "slow_ratio": 0.5, "cooldown": 5}
SLOW_CALLS: dict[str, Any] = {"ratio": 0.5, "calls": 5, "slow": 4, "slow_ratio": 0.5}
HALF_OPEN: dict[str, Any] = {"failures": 1, "cooldown": 5, "probes": 4, "probe_ratio": 0.5}
SLOW_PROBES: dict[str, Any] = HALF_OPEN | {"slow": 4, "slow_ratio": 0.5}
GOBREAKER: dict[str, Any] = {"ratio": 0.6, "minimum": 3, "window": 30, "cooldown": 90, "probes": 3}

OTHERS = [
    row(
        "cb.gobreaker.default",
        f"{F5}closed failed:5/5 S closed failed:0/0 F closed failed:1/1 {F5}open rejected:60 "
        "later:59 open later:1 half_open F open later:60 half_open S closed failed:0/0",
        failures=6,
        cooldown=60,
    ),
    # gobreaker resets its counts at the end of an interval; here the window slides: the call at 29 s stays.
    row(
        "cb.gobreaker.custom_ratio_interval-deviates",
        f"{'S F ' * 5}closed failed:5/10 later:29 S closed failed:5/11 later:1 F closed failed:1/2 "
        "S F closed failed:2/4 F open later:90 half_open S S half_open start rejected finish:S closed",
        **GOBREAKER,
    ),
    # In gobreaker the end of an interval makes tickets stale; here only a change of state does (next row).
    row("cb.gobreaker.generation-deviates", "S start later:30 failed:0/0 finish:S failed:0/1", **GOBREAKER),
    row("cb.gobreaker.generation", "start F open later:30 S closed finish:F closed", failures=1),
    # cockatiel opens above the ratio; here a share equal to it is enough.
    row("cb.cockatiel.count-25-25-deviates", f"{S24}S {'F ' * 24}closed F open", ratio=0.5, minimum=50),
    row("cb.cockatiel.count-24-26", f"{S24}{'F ' * 25}closed F open", ratio=0.51, minimum=50),
    row(
        "cb.cockatiel.sampling",
        " later:1 ".join("F S S " * times for times in range(7)) + "failed:20/60",
        window=5,
        **NEVER,
    ),
    row("cb.cockatiel.below-minimum", "F later:0.5 " * 10 + "closed", ratio=0.5, window=5, minimum=15),
    # cockatiel derives the minimum from the other options; here it is 20 calls by default.
    row("cb.cockatiel.minimum-deviates", f"{'F ' * 19}closed F open", ratio=0.25, window=0.103),
    row(
        "cb.r4j_count_window",
        "S S F F failed:2/4 F F F F S S S S failed:6/10 S S S failed:3/10",
        calls=10,
        ratio=1,
    ),
    row("cb.r4j_count_window.minimum", "F " * 9 + "closed F open", calls=10, ratio=0.6, minimum=10),
    row(
        "cb.r4j_slow_calls",
        "takes:10:S takes:10:F takes:0.1:S takes:0.1:S takes:0.1:S failed:1/5 slow:2",
        slow=5,
        slow_ratio=0.5,
        ratio=1,
        minimum=5,
    ),
    # Without a rate of its own, a slow call is a failure, and counts once.
    row(
        "cb.r4j_slow_calls.failures",
        "takes:10:S takes:10:F takes:0.1:S takes:0.1:S takes:0.1:S failed:2/5",
        slow=5,
        **NEVER,
    ),
    row("cb.r4j_scenarios.slow-rate", "takes:5 takes:5 takes:5 S closed S open", **SLOW_RATE),
    # Failures are 40 % of these calls, and slow calls 60 %.
    row(
        "cb.r4j_scenarios.slow-rate-and-failures",
        "takes:5:F takes:5:S takes:0.1:F takes:0.1:S closed failed:2/4 slow:2 takes:5:S open",
        **SLOW_CALLS,
    ),
    row("cb.r4j_scenarios.half-open-slow", "F later:5 takes:5 takes:1 half_open takes:5 open", **SLOW_PROBES),
    row("cb.r4j_scenarios.half-open-slow-below", "F later:5 takes:5 S S S closed", **SLOW_PROBES),
    row(
        "cb.r4j_scenarios.half-open-permits",
        "F later:5 start start start start rejected rejected finish:foreign start rejected half_open",
        **HALF_OPEN,
    ),
    row(
        "cb.r4j_scenarios.half-open-ignored-many",
        "F later:5 " + "foreign " * 9 + "S S half_open",
        **HALF_OPEN,
    ),
    row(
        "cb.r4j_scenarios.wait-interval",
        "F rejected:5 later:6 F later:6 rejected:1.5 later:5 half_open F rejected:11.25 later:11.25 S closed "
        "F rejected:5",
        failures=1,
        cooldown=Backoff.exponential(5, 1.5),
    ),
    row("cb.r4j_scenarios.half-open", "F later:5 F S S half_open S closed", **HALF_OPEN),
    row("cb.r4j_scenarios.half-open-reached", "F later:5 F S F open", **HALF_OPEN),
    row("cb.r4j_scenarios.half-open-ignored", "F later:5 foreign half_open F S S S closed", **HALF_OPEN),
    row("cb.r4j_scenarios.disabled", "disable F F F disabled failed:0/0 close F open", failures=1),
    row(
        "cb.r4j_scenarios.metrics_only",
        "measure F F F F F metrics_only failed:5/5 S failed:5/6",
        ratio=0.5,
        minimum=5,
        events="metrics_only exceeded",
    ),
    row(
        "cb.r4j_scenarios.forced_open", "isolate rejected later:1000 rejected disable F disabled", failures=1
    ),
    row("cb.r4j_scenarios.failures", "F F F S closed S open", ratio=0.5, minimum=5, window=20),
    row("cb.r4j_scenarios.slow", "takes:5 takes:5 takes:5 S S open", ratio=0.5, minimum=5, slow=4),
    row("cb.r4j_scenarios.ignored", "F later:5 foreign half_open start", failures=1, cooldown=5),
    row("cb.r4j_scenarios.late", "start F open finish:S open failed:0/0", ratio=1, minimum=1),
    # resilience4j closes if one of four probes fails; here all must succeed, unless there is a share.
    row("cb.r4j_scenarios.half-open-deviates", "F later:5 S S S F open", failures=1, cooldown=5, probes=4),
]


@in_every_colour
@pytest.mark.parametrize(("script", "reached", "events", "terms"), HTTPWARE + POLLY + FAILSAFE + OTHERS)
def test_states_counts_and_events(
    colour: str, script: str, reached: int | None, events: str | None, terms: dict[str, Any]
) -> None:
    """After each call."""
    check(colour, script, reached, events, terms)


@in_every_colour
def test_hw_cb_05_a_rule_decides_what_is_a_failure(colour: str) -> None:
    """HW-CB-05: here a 503 is one, and a 500 is not."""

    def only_503(error: Exception) -> bool:
        return str(error) == "503"

    service = run(colour, "500 500 503 503 rejected:30 open", on=only_503, failures=2)
    assert service.reached == 4


@in_every_colour
def test_hw_cb_15_rejections_are_reported_once_deviates(colour: str) -> None:
    """HW-CB-15: httpware logs them once a second; here the first is emitted, and later their number."""
    script = "F rejected:10 " + "rejected:10 " * 4 + "later:1 rejected:9 later:9 S closed"
    events = [(event.what, event.rejected) for event in run(colour, script, failures=1, cooldown=10).events]
    assert events == [
        ("circuit_opened", 0),
        ("circuit_rejected", 1),
        ("circuit_half_open", 6),
        ("circuit_closed", 6),
    ]


@in_every_colour
def test_cb_r4j_scenarios_a_rule_that_raises_frees_its_probe(colour: str) -> None:
    """cb.r4j_scenarios: in resilience4j the probe was lost for ever (its issue 2324)."""
    answers = [True]

    def rule(_: Exception) -> bool:
        return answers.pop()

    run(colour, "F later:30 F half_open S closed", on=rule, failures=1)
    assert answers == []
