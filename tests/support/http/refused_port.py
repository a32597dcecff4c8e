"""A port where connecting is refused until it is opened."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from threading import Thread

HOST = "127.0.0.1"
LIMIT = 30.0  # seconds; only a failing test waits this long


@contextmanager
def opened_later(to: int) -> Generator[tuple[int, Callable[[], None]]]:
    """Yield a port that refuses connections, and a function that opens it; it then relays one to ``to``."""
    threads, ends = list[Thread](), list[socket.socket]()

    def open_up() -> None:
        held.listen()
        threads.append(Thread(target=_relay, args=(held, to, ends), daemon=True))
        threads[-1].start()

    with socket.socket() as held:
        held.settimeout(LIMIT)
        held.bind((HOST, 0))
        try:
            yield held.getsockname()[1], open_up
        finally:
            for end in ends:  # a client may keep its socket open as long as its response is referenced
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _relay(listener: socket.socket, port: int, ends: list[socket.socket]) -> None:
    ours, _ = listener.accept()
    with ours, socket.create_connection((HOST, port)) as theirs:
        ends += [ours, theirs]
        back = Thread(target=_pump, args=(theirs, ours), daemon=True)
        back.start()
        _pump(ours, theirs)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
