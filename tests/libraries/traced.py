"""A program that one instrumentation library traces: it prints the spans of a call of each client.

    python -m tests.libraries.traced opentelemetry URL URL ...

The URLs, one for each client, are of a server that responds 503, 503, 200. These libraries patch the clients
for good, so each is tried in a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.libraries.retrying_clients import CLIENTS
from tests.libraries.servers import library

Spans = Callable[[Callable[[], object]], list[tuple[str, int]]]  # makes a call; returns (library, status)


def opentelemetry() -> Spans:
    """Trace with OpenTelemetry's instrumentors."""
    exporting = library("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = library("opentelemetry.sdk.trace").TracerProvider()
    provider.add_span_processor(library("opentelemetry.sdk.trace.export").SimpleSpanProcessor(exporting))
    for module, name in (("httpx", "HTTPXClientInstrumentor"), ("requests", "RequestsInstrumentor")):
        instrumentor = getattr(library(f"opentelemetry.instrumentation.{module}"), name)
        instrumentor().instrument(tracer_provider=provider)

    def spans(call: Callable[[], object]) -> list[tuple[str, int]]:
        exporting.clear()
        call()
        return [
            (span.instrumentation_scope.name.rpartition(".")[2], span.attributes["http.status_code"])
            for span in exporting.get_finished_spans()
        ]

    return spans


def sentry() -> Spans:
    """Trace with sentry-sdk."""
    sdk, transactions = library("sentry_sdk"), list[Any]()

    def keep(event: Any, _: object) -> None:
        transactions.append(event)

    def drop(_: object) -> None:
        pass

    sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        traces_sample_rate=1.0,
        transport=drop,
        before_send_transaction=keep,
    )

    def spans(call: Callable[[], object]) -> list[tuple[str, int]]:
        transactions.clear()
        with sdk.start_transaction(name="test"):
            call()
        [transaction] = transactions
        return [
            (span["op"], span["data"]["http.response.status_code"])
            for span in transaction["spans"]
            if span["op"] == "http.client"
        ]

    return spans


def ddtrace() -> Spans:
    """Trace with ddtrace."""
    for setting in ("DD_INSTRUMENTATION_TELEMETRY_ENABLED", "DD_REMOTE_CONFIGURATION_ENABLED"):
        os.environ[setting] = "false"
    os.environ["DD_TRACE_AGENT_URL"] = "http://127.0.0.1:9"
    finished = list[Any]()

    class Keep(library("ddtrace.trace").TraceFilter):  # type: ignore[misc]  # its class is known at run time
        def process_trace(self, trace: Any) -> None:
            finished.extend(trace)

    library("ddtrace").patch(httpx=True, requests=True, aiohttp=True, urllib3=True)
    library("ddtrace.trace").tracer.configure(trace_processors=[Keep()])

    def spans(call: Callable[[], object]) -> list[tuple[str, int]]:
        finished.clear()
        call()
        found = ((span.get_tag("component"), span.get_tag("http.status_code")) for span in finished)
        return [(component, int(status)) for component, status in found if status is not None]

    return spans


if __name__ == "__main__":
    instrumentation, *urls = sys.argv[1:]
    spans_of = {"opentelemetry": opentelemetry, "sentry": sentry, "ddtrace": ddtrace}[instrumentation]()
    pairs = zip(CLIENTS.items(), urls, strict=True)
    print(json.dumps({name: spans_of(partial(call, url)) for (name, call), url in pairs}))
