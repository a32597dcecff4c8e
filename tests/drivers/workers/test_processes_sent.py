"""The time of sending a call to a worker process is part of the attempt."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Retry, errors, report
from redouble._drivers.workers import process_pool as _pool
from redouble._drivers.workers.pickling import pack
from tests.support.fakes import Virtual, always
from tests.support.workers import functions as in_process
from tests.support.workers.functions import PROCESS


class Slow:
    """A fake worker process whose sending and replying take time."""

    def __init__(self, clock: Virtual, sending: float, answering: float) -> None:
        self.clock, self.sending, self.answering = clock, sending, answering
        self.loaded = {in_process.__name__}
        self.log: list[str] = []

    def is_ready(self, seconds: float) -> bool:
        return True

    def send(self, work: bytes) -> None:
        self.clock.time += self.sending

    def has_reply(self, seconds: float) -> bool:
        self.clock.time += min(seconds, self.answering)
        return self.answering <= seconds

    def receive(self) -> tuple[str, bytes, str]:
        return "value", pack("done"), ""

    def park(self) -> None:
        self.log.append("parked")

    def kill(self) -> None:
        self.log.append("killed")

    def end(self) -> None:
        self.log.append("ended")


@pytest.mark.parametrize(
    ("sending", "answering", "in_time"),
    [(0, 1, True), (1, 1, True), (1.5, 1, False), (4, 1, False), (0, 3, False)],
)
@pytest.mark.parametrize("limit", ["attempt_timeout", "timeout"])
def test_the_time_of_sending_counts_for_limits(
    sending: float, answering: float, in_time: bool, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Virtual()
    process = Slow(clock, sending, answering)
    monkeypatch.setattr(_pool.WorkerProcess, "idle", always(process))
    limits: dict[str, Any] = {limit: 2}
    policy = Retry(attempts=1, clock=clock, worker=PROCESS, give_up_after=None, **limits)
    if in_time:
        assert policy.call(in_process.echo) == "done"
        assert process.log == ["parked"]
        return
    with pytest.raises((errors.AttemptTimeout, errors.DeadlineExceeded)) as caught:
        policy.call(in_process.echo)
    reported = report(caught.value)
    assert reported is not None
    assert reported.limit == {"attempt_timeout": "attempt", "timeout": "total"}[limit]
    assert process.log == ["killed", "ended"]
    assert clock.time == max(2, sending)
