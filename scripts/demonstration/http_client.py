"""One HTTP request to the flaky service, by the standard library and without retries."""

from __future__ import annotations

import http.client


class UnavailableError(Exception):
    """The service answered 503 with ``Retry-After``."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"503 Service Unavailable, Retry-After: {retry_after:g}")
        self.retry_after = retry_after


def get(port: int, path: str) -> bytes:
    """Send one request and return the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        if response.status == http.client.SERVICE_UNAVAILABLE:
            raise UnavailableError(float(response.headers["Retry-After"]))
        return body
    finally:
        connection.close()
