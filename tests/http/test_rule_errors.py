"""`http.rule`: invalid options raise at construction, with the name of the option."""

from __future__ import annotations

from typing import Any

import pytest

from redouble.http import rule
from tests.support.fakes import UnhashableRule


@pytest.mark.parametrize(
    "statuses", [503, "503", b"503", True, 5.5, object(), {"503"}, {True}, [5.5], [None]]
)
def test_statuses_must_be_a_set_of_numbers(statuses: Any) -> None:
    with pytest.raises(TypeError, match=r"^statuses.*such as \{502, 503\}"):
        rule(statuses=statuses)


@pytest.mark.parametrize("status", [0, -503, 99, 200, 204, 301, 399, 600, 10**40])
def test_statuses_must_be_error_statuses(status: int) -> None:
    with pytest.raises(ValueError, match=f"^statuses: {status} is not an error: write numbers"):
        rule(statuses={503, status})


@pytest.mark.parametrize("statuses", [{400}, [599], (503, 503), range(500, 600), {503: "x"}, iter([503])])
def test_any_iterable_of_statuses_is_accepted(statuses: Any) -> None:
    assert rule(statuses=statuses).statuses <= set(range(400, 600))


@pytest.mark.parametrize(
    "methods", ["GET", b"GET", None, 5, True, object(), {5}, [b"GET"], {""}, {"GE T"}, ["é"]]
)
def test_methods_must_be_a_set_of_names(methods: Any) -> None:
    with pytest.raises(TypeError, match=r"^methods.*such as \{'GET', 'POST'\}"):
        rule(methods=methods)


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ((), frozenset[str]()),
        (["get", "Post"], frozenset({"GET", "POST"})),
        (iter(["PATCH"]), {"PATCH"}),
        ({"M-SEARCH"}, {"M-SEARCH"}),
    ],
)
def test_methods_are_case_insensitive(methods: Any, expected: frozenset[str]) -> None:
    assert rule(methods=methods).methods == expected


@pytest.mark.parametrize(
    "errors",
    [
        5,
        "OSError",
        int,
        KeyboardInterrupt,
        BaseException,
        [],
        (OSError, 5),
        list[int],
        UnhashableRule(),
        [UnhashableRule()],
    ],
)
def test_errors_must_be_types_or_a_rule(errors: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^errors="):
        rule(errors=errors)


def test_errors_must_not_be_a_coroutine_function() -> None:
    async def later(_: Exception) -> bool:
        return True

    with pytest.raises(TypeError, match=r"^errors=.*rules are plain functions"):
        rule(errors=later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_other_options_raise() -> None:
    make: Any = rule
    with pytest.raises(TypeError, match="attempts"):
        make(attempts=3)
    with pytest.raises(TypeError, match="positional"):
        make({503}, {"GET"}, OSError, 4)
