"""The requests that the server has received, per key and in order of arrival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import Condition

from tests.support.servers.connection import Head
from tests.support.servers.script import Step

LIMIT = 30.0  # seconds; long, because only a failing test waits for all of it


@dataclass(frozen=True)
class Received:
    """One request."""

    number: int  # the first request of its key is 1
    method: str
    path: str
    query: str
    headers: Mapping[str, str]  # lower-case names
    raw: tuple[tuple[str, str], ...]  # all headers as they were sent
    connection: int  # the first connection of the server is 1
    at: float  # the time at which its head had arrived
    played: str  # the text of the step
    body: bytes = b""  # the part that was read, without chunk headers
    complete: bool = False  # True if the whole body was read

    @property
    def tail(self) -> str:
        """The path after the script, which the client appended."""
        return "/" + "".join(self.path.split("/", 4)[4:])


class RequestLog:
    """The requests per key; a reader never sees a request that is partly recorded."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Received]] = {}
        self._changed = Condition()

    def arrived(
        self, key: str, head: Head, steps: tuple[Step, ...], connection: int, at: float
    ) -> tuple[Received, Step]:
        """Record a request, and return the step to play for it."""
        with self._changed:
            entries = self._entries.setdefault(key, [])
            step = steps[min(len(entries), len(steps) - 1)]
            entry = Received(
                number=len(entries) + 1,
                method=head.method,
                path=head.path,
                query=head.query,
                headers=head.headers,
                raw=head.raw,
                connection=connection,
                at=at,
                played=step.text,
                complete=not head.has_body,
            )
            entries.append(entry)
            self._changed.notify_all()
            return entry, step

    def filled(self, key: str, entry: Received, body: bytes, complete: bool) -> Received:
        """Add the body to a request."""
        entry = replace(entry, body=body, complete=complete)
        with self._changed:
            self._entries[key][entry.number - 1] = entry
            self._changed.notify_all()
        return entry

    def of(self, key: str) -> list[Received]:
        """Return the requests received for a key so far."""
        with self._changed:
            return [*self._entries.get(key, ())]

    def wait_for(self, key: str, requests: int) -> list[Received]:
        """Wait until this many requests have arrived for a key."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._entries.get(key, ())) >= requests, LIMIT):
                raise TimeoutError(f"{len(self._entries.get(key, ()))} requests arrived, not {requests}")
            return [*self._entries[key]]
