"""The server of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from serving import Server, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server
