"""Bodies of requests: which can be resent, and from which position."""

from __future__ import annotations

import io
import os
import queue
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

from redouble.http import AsyncReplayable, Replayable, replayable
from redouble.http._request_body import classify_body, classify_parts, nothing_to_rewind

DATA = b"one, two, three"


def pieces() -> Iterator[bytes]:
    yield DATA[:5]
    yield DATA[5:]


async def apieces() -> AsyncIterator[bytes]:
    yield DATA[:5]
    yield DATA[5:]


class Reiterable:
    def __iter__(self) -> Iterator[bytes]:
        return pieces()


class AsyncReiterable:
    def __aiter__(self) -> AsyncIterator[bytes]:
        return apieces()


class ReadOnly:
    """A file that can be read and not rewound."""

    def read(self, size: int = -1) -> bytes:
        return b""


class NoSeek(io.BytesIO):
    """A file whose seekable() returns True, and whose seek() raises."""

    def seek(self, *_: Any) -> int:
        raise OSError("no")


class NoTell(io.BytesIO):
    """A file whose tell() raises."""

    def tell(self) -> int:
        raise OSError("no")


@pytest.mark.parametrize(
    "source",
    [
        None,
        b"",
        b"x",
        "x",
        bytearray(b"x"),
        memoryview(b"x"),
        [b"x"],
        (b"x",),
        {"a": "b"},
        Reiterable(),
        AsyncReiterable(),
        replayable(pieces),
        replayable(apieces),
    ],
    ids=lambda source: type(source).__name__,
)
def test_values_and_iterables_are_resendable(source: object) -> None:
    assert classify_body(source) is nothing_to_rewind
    assert nothing_to_rewind()


@pytest.mark.parametrize(
    "source",
    [iter([b"x"]), map(bytes, [b"x"]), apieces(), ReadOnly(), NoTell(), NoSeek(), object(), 5],
    ids=lambda source: type(source).__name__,
)
def test_iterators_and_unknown_objects_are_not_resendable(source: object) -> None:
    assert not classify_body(source)()


def test_a_generator_is_resendable_until_it_is_begun() -> None:
    body = pieces()
    rewind = classify_body(body)
    assert rewind()
    next(body)
    assert not rewind()
    assert [*body] == [DATA[5:]]
    assert not rewind()


@pytest.mark.parametrize("start", [0, 5, len(DATA)])
@pytest.mark.parametrize("kind", ["memory", "file", "unbuffered"])
def test_a_file_is_rewound_to_its_first_position(tmp_path: Path, kind: str, start: int) -> None:
    """Any number of times."""
    path = tmp_path / "body"
    path.write_bytes(DATA)
    with io.BytesIO(DATA) if kind == "memory" else path.open("rb", 0 if kind == "unbuffered" else -1) as file:
        file.seek(start)
        rewind = classify_body(file)
        for _ in range(3):
            assert file.read() == DATA[start:]
            assert rewind()
            assert file.tell() == start


def test_a_text_file_is_rewound_too() -> None:
    file = io.TextIOWrapper(io.BytesIO("ä, ö, ü".encode()))
    assert file.read(3) == "ä, "
    rewind = classify_body(file)
    assert [file.read(), rewind(), file.read()] == ["ö, ü", True, "ö, ü"]


def test_a_text_file_that_is_being_iterated_is_not_resendable() -> None:
    file = io.TextIOWrapper(io.BytesIO(b"a\nb\n"))
    assert next(file) == "a\n"
    assert not classify_body(file)()


def test_a_closed_file_is_not_resendable() -> None:
    file = io.BytesIO(DATA)
    rewind = classify_body(file)
    file.close()
    assert not rewind()
    assert not classify_body(file)()


def test_a_pipe_is_not_resendable() -> None:
    end, other = os.pipe()
    os.close(other)
    with os.fdopen(end, "rb") as pipe:
        assert not classify_body(pipe)()


@pytest.mark.parametrize(
    ("run", "open_file"), [(anyio.run, anyio.open_file), (trio.run, trio.open_file)], ids=["anyio", "trio"]
)
def test_an_async_file_is_not_resendable(
    tmp_path: Path, run: Callable[[Any], None], open_file: Callable[..., Awaitable[Any]]
) -> None:
    """Its methods return awaitables instead of positions."""
    path = tmp_path / "body"
    path.write_bytes(DATA)

    async def main() -> None:
        async with await open_file(path, "rb") as file:
            rewind = classify_body(file)
            assert await file.read() == DATA
            assert not rewind()

    run(main)


# ------------------------------------------------------------------------- multipart bodies


def read(*files: io.BytesIO) -> list[bytes]:
    return [file.read() for file in files]


def test_parts_that_need_no_rewinding_are_resendable() -> None:
    assert classify_parts([]) is nothing_to_rewind
    assert classify_parts([None, b"x", "x", [b"x"]]) is nothing_to_rewind


def test_all_files_among_the_parts_are_rewound() -> None:
    one, two = io.BytesIO(b"1234"), io.BytesIO(b"5678")
    two.seek(2)
    rewind = classify_parts([b"x", one, None, two])
    assert read(one, two) == [b"1234", b"78"]
    assert rewind()
    assert read(one, two) == [b"1234", b"78"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_part_that_is_not_resendable_is_enough(place: int) -> None:
    files = [io.BytesIO(b"1234"), io.BytesIO(b"5678")]
    assert not classify_parts([*files[:place], iter([b"x"]), *files[place:]])()


# --------------------------------------------------------------- bodies made by a function


class Makes:
    """A callable object."""

    def __call__(self) -> Iterator[bytes]:
        return pieces()

    def method(self) -> Iterator[bytes]:
        yield from pieces()


class AsyncMakes:
    async def __call__(self) -> AsyncIterator[bytes]:
        for piece in pieces():
            yield piece

    method = __call__


def two() -> list[bytes]:
    return [DATA[:5], DATA[5:]]


@pytest.mark.parametrize(
    "make",
    [pieces, two, Reiterable, Makes(), Makes().method, partial(pieces), partial(io.BytesIO, DATA)],
    ids=["generator", "list", "class", "object", "method", "partial", "file"],
)
def test_replayable_calls_the_function_for_each_iteration(make: Callable[[], Iterable[bytes]]) -> None:
    body = replayable(make)
    assert type(body) is Replayable
    assert [b"".join(body) for _ in range(3)] == [DATA] * 3


@pytest.mark.parametrize("make", [apieces, AsyncMakes(), AsyncMakes().method, partial(apieces)])
def test_replayable_with_an_async_generator_is_an_async_body(
    make: Callable[[], AsyncIterator[bytes]],
) -> None:
    body = replayable(make)

    async def main() -> list[bytes]:
        return [b"".join([piece async for piece in body]) for _ in range(3)]

    assert type(body) is AsyncReplayable
    assert trio.run(main) == [DATA] * 3


def test_replayable_does_not_call_the_function_early() -> None:
    def never() -> Iterator[bytes]:
        raise AssertionError

    assert classify_body(replayable(never)) is nothing_to_rewind
    iter(replayable(never))


def test_a_file_from_replayable_is_read_in_pieces_and_closed() -> None:
    """Even if the rest is never read."""
    opened = list[io.BytesIO]()

    def opens() -> io.BytesIO:
        opened.append(io.BytesIO(bytes(200_000)))
        return opened[-1]

    body = replayable(opens)
    assert [len(piece) for piece in body] == [65_536, 65_536, 65_536, 3_392]
    rest: Any = iter(body)
    next(rest)
    assert [file.closed for file in opened] == [True, False]
    rest.close()
    assert [file.closed for file in opened] == [True, True]


async def coroutine() -> bytes:
    return DATA


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (DATA, "write a function that opens the body"),
        (None, "write a function that opens the body"),
        (pieces(), "write a function that opens the body"),
        (coroutine, "coroutine.*: write a generator function, or an async one"),
        (partial(coroutine), "write a generator function, or an async one"),
    ],
    ids=["bytes", "None", "generator", "coroutine function", "partial"],
)
def test_replayable_refuses_what_makes_no_body(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        replayable(make)


class Joined:
    """An iterable that holds another object."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __iter__(self) -> Iterator[bytes]:
        yield b""


@pytest.mark.parametrize(
    ("held", "resendable"),
    [
        ([b"a", b"b"], True),
        ({"a": b"b"}, True),
        (deque([b"a"]), True),
        ([iter([b"a"])], False),
        ({"a": iter([b"b"])}, False),
        (Joined([iter([b"a"])]), False),
        (Joined("a"), True),
        (queue.Queue[bytes](), False),
    ],
)
def test_an_iterable_that_holds_an_iterator_is_not_resendable(held: object, resendable: bool) -> None:
    assert classify_body(Joined(held))() is resendable
