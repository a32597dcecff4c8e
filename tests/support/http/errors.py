"""Errors of the HTTP clients, from responses that were created without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import aiohttp
import httpx
import httpx2
import pytest
import requests
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

ADDRESS = "http://host.test/path"

MakeError: TypeAlias = Callable[[str, int, Mapping[str, str]], Exception]


def by_httpx(method: str, status: int, headers: Mapping[str, str]) -> Exception:
    answer = httpx.Response(status, headers=headers, request=httpx.Request(method, ADDRESS))
    return caught(answer.raise_for_status)


def by_httpx2(method: str, status: int, headers: Mapping[str, str]) -> Exception:
    answer = httpx2.Response(status, headers=headers, request=httpx2.Request(method, ADDRESS))
    return caught(answer.raise_for_status)


def by_requests(method: str, status: int, headers: Mapping[str, str]) -> Exception:
    answer = requests.Response()
    answer.status_code = status
    answer.headers.update(headers)
    answer.request = requests.Request(method, ADDRESS).prepare()
    return caught(answer.raise_for_status)


def by_aiohttp(method: str, status: int, headers: Mapping[str, str]) -> Exception:
    return aiohttp.ClientResponseError(
        request_info(method), (), status=status, headers=CIMultiDictProxy(CIMultiDict(headers))
    )


def by_an_sdk(method: str, status: int, headers: Mapping[str, str]) -> Exception:
    return ApiStatusError(httpx.Response(status, headers=headers, request=httpx.Request(method, ADDRESS)))


class ApiStatusError(Exception):
    """An error like those of the SDKs of language models."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__("no")
        self.response, self.request, self.status_code = response, response.request, response.status_code


def request_info(method: str) -> aiohttp.RequestInfo:
    none: CIMultiDict[str] = CIMultiDict()
    return aiohttp.RequestInfo(URL(ADDRESS), method, CIMultiDictProxy(none), URL(ADDRESS))


def caught(fn: Callable[[], object]) -> Exception:
    try:
        fn()
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


CLIENTS: list[MakeError] = [by_httpx, by_httpx2, by_requests, by_aiohttp, by_an_sdk]
every_client = pytest.mark.parametrize("make_error", CLIENTS, ids=lambda make: make.__name__)


def error_without_response(kind: Callable[..., Exception], method: str) -> Exception:
    """Return the error of a request without a response."""
    request: Any = httpx.Request if kind.__module__.startswith("httpx") else requests.Request
    return kind("lost", request=request(method, ADDRESS))
