"""Fixtures of the SDK tests: a server that plays their protocols, and clients that call it."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.llm.sdk_models import SDKS, SdkClient, Server, opened


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(scope="module", params=SDKS)
def sdk_client(request: pytest.FixtureRequest) -> Generator[SdkClient]:
    with opened(request.param) as found:
        yield found
