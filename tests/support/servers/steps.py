"""Playing a step on a connection."""

from __future__ import annotations

from typing import NoReturn

from tests.support.servers.connection import Connection
from tests.support.servers.request_log import Received
from tests.support.servers.response_bytes import compose
from tests.support.servers.script import Step

GARBAGE = b"\x00\xff\xfe this is no HTTP \x16\x03\x01\r\n\r\n"


def play(step: Step, received: Received, wire: Connection, last: bool) -> None:
    """Respond to a request as the step specifies; return only if the connection can be used again."""
    match step.kind:
        case "rst" | "close" | "stall":
            _break(wire, step.kind)
        case "garbage":
            wire.send(GARBAGE)
            wire.finish()
        case _:
            _answer(step, received, wire, last or step.close or step.early)


def _answer(step: Step, received: Received, wire: Connection, last: bool) -> None:
    answer = compose(step, received, last)
    if step.head_fault is not None:
        _send_head(answer.head[: step.head_fault.after], step, wire)
        _break(wire, step.head_fault.how)
    if step.driphead is None and step.drip is None:
        wire.send(b"".join((answer.head, *answer.pieces, answer.end)))
    else:
        _send_head(answer.head, step, wire)
        for piece in answer.pieces:
            wire.wait(step.drip or 0)
            wire.send(piece)
        wire.send(answer.end)
    if step.fault is not None and step.fault.breaks:
        _break(wire, step.fault.how)
    if last:
        wire.finish()


def _send_head(head: bytes, step: Step, wire: Connection) -> None:
    if step.driphead is None:
        wire.send(head)
        return
    for byte in head:
        wire.wait(step.driphead)
        wire.send(bytes([byte]))


def _break(wire: Connection, how: str) -> NoReturn:
    """End a connection as a fault specifies."""
    if how == "rst":
        wire.reset()
    if how == "stall":
        wire.silence()
    wire.finish()
