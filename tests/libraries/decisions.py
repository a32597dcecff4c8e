"""Every public exception class of every library, with the verdict of `transient`.

The verdicts are in the folder of the same name, one file per library, so that a new release with a new class
fails the tests until its verdict is decided. To rewrite the files, and then review the changes:

    .venv-libraries/bin/python -m tests.libraries.decisions
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from redouble import Verdict, transient

FOLDER = Path(__file__).parent / "decisions"

# The modules with the exceptions of each library.
LIBRARIES: dict[str, list[str]] = {
    "aiohttp": ["aiohttp", "aiohttp.client_exceptions", "aiohttp.http_exceptions"],
    "aiokafka": ["aiokafka.errors"],
    "anthropic": ["anthropic", "anthropic._exceptions"],
    "anyio": ["anyio"],
    "asyncmy": ["asyncmy.errors"],
    "asyncpg": ["asyncpg.exceptions", "asyncpg.exceptions._base"],
    "azure": ["azure.core.exceptions"],
    "botocore": ["botocore.exceptions"],
    "cassandra": [
        "cassandra",
        "cassandra.cluster",
        "cassandra.connection",
        "cassandra.pool",
        "cassandra.protocol",
    ],
    "confluent_kafka": ["confluent_kafka", "confluent_kafka.error", "confluent_kafka.serialization"],
    "elasticsearch": ["elastic_transport", "elasticsearch", "elasticsearch.helpers"],
    "google": ["google.api_core.exceptions", "google.auth.exceptions"],
    "grpc": ["grpc", "grpc.aio", "grpc._channel"],
    "h11": ["h11"],
    "httpcore": ["httpcore"],
    "httpcore2": ["httpcore2"],
    "httpx": ["httpx"],
    "httpx2": ["httpx2"],
    "kafka": ["kafka.errors"],
    "openai": ["openai", "openai._exceptions"],
    "opensearchpy": ["opensearchpy.exceptions"],
    "oracledb": ["oracledb.exceptions"],
    "pika": ["pika.exceptions", "pika.adapters.utils.connection_workflow"],
    "psycopg": ["psycopg", "psycopg.errors", "psycopg_pool"],
    "psycopg2": ["psycopg2", "psycopg2.extensions", "psycopg2.pool"],
    "pymongo": ["pymongo.errors"],
    "pymysql": ["pymysql.err"],
    "redis": [
        "redis.exceptions",
        "redis.asyncio.sentinel",
        "redis.multidb.exception",
        "redis.sentinel",
    ],
    "requests": ["requests.exceptions"],
    "sqlalchemy": ["sqlalchemy.exc", "sqlalchemy.orm.exc"],
    "trio": ["trio"],
    "urllib3": ["urllib3.exceptions"],
    "websockets": ["websockets.exceptions", "websockets.legacy.exceptions"],
}


def classes(library: str) -> dict[str, type[Exception]]:
    """Return the exception classes of a library, without warnings."""
    found: dict[str, type[Exception]] = {}
    for name in LIBRARIES[library]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(name)
            things = [getattr(module, each, None) for each in dir(module)]  # some are imported on demand
        roots = {"cimpl", *(module.partition(".")[0] for module in LIBRARIES[library])}
        for thing in things:
            if (
                isinstance(thing, type)
                and issubclass(thing, Exception)
                and not issubclass(thing, Warning)
                and thing.__module__.partition(".")[0] in roots
            ):
                found[f"{thing.__module__}.{thing.__qualname__}"] = thing
    return found


def spell(verdict: Verdict | None) -> str:
    """Format a verdict."""
    return "no" if verdict is None else f"{verdict.kind} sent={verdict.sent} {verdict.reason}"


def decision(kind: type[Exception]) -> str:
    """Return the verdict on a class, or the name of the function that reads its errors."""
    looks: Any = transient
    _, _, entry = looks._look_up(kind)
    on_the_class = isinstance(getattr(kind, "sqlstate", None), str) or hasattr(kind, "retriable")
    if entry is None or isinstance(entry, Verdict):
        return spell(entry)
    # An instance without attributes is enough if the class has them.
    return spell(transient(kind.__new__(kind))) if on_the_class else str(entry.__name__)


def decisions(library: str) -> Iterator[str]:
    """Yield a line for every class."""
    for name, kind in sorted(classes(library).items()):
        yield f"{name}: {decision(kind)}"


def written(library: str) -> list[str]:
    """Read the decided verdicts."""
    return (FOLDER / f"{library}.txt").read_text("utf-8").splitlines()


if __name__ == "__main__":
    for each in LIBRARIES:
        (FOLDER / f"{each}.txt").write_text("\n".join(decisions(each)) + "\n", "utf-8")
