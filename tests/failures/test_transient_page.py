"""The page about `transient` agrees with the tables in the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from redouble import Verdict
from redouble._failures import codes as _codes
from redouble._failures.builtin_errors import Entry
from redouble._failures.known_errors import TABLE

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "transient.md").read_text("utf-8")

# The page's description of each reader.
WORDS = {
    "by_amqp_code": "by reply code",
    "by_amqp_handshake": "if it was cut",
    "by_azure_status": "by status, else as the error inside",
    "by_broken_stream": "yes, if it can get better",
    "by_close_code": "by close code, else yes",
    "by_closed_connection": "as the loss that it hides",
    "by_cooldown": "yes",
    "by_cut_handshake": "if it was cut",
    "by_google_code": "by code, else by status",
    "by_hosts": "as the errors of all hosts",
    "by_last_attempt": "as the last error inside",
    "by_mongo_code": "by code, else by label",
    "by_oracle_code": "by code",
    "by_recipients": "if all reply codes are",
    "by_redis_code": "by first word",
    "by_retryable": "if it is `retryable`",
    "by_smtp_code": "by reply code",
    "by_llm_error": "by status, else by word",
    "by_aws_code": "by code, else by status",
    "by_errno": "by errno",
    "by_errno_or_network": "by errno, else yes",
    "by_grpc_code": "by code",
    "by_hint": "yes",
    "by_host_lookup": 'if it says "try again"',
    "by_cause": "as the error inside",
    "by_cause_or_network": "as the error inside, else yes",
    "by_cause_or_timeout": "as the error inside, else yes",
    "by_kafka_name": "by code",
    "by_lookup": "if it may be temporary",
    "by_last": "as its `last`",
    "by_members": "if all members are",
    "by_mysql_code": "by code",
    "by_orig": "as its `orig`",
    "by_payload": "yes, if it can be decoded",
    "by_proxy_status": "by status",
    "by_redis_text": "by errno in the text, else yes",
    "by_redis_timeout": "yes",
    "by_retriable": "if it is `retriable`",
    "by_sqlite_name": "if locked",
    "by_sqlstate": "by SQLSTATE",
    "by_sqlstate_or_text": "by SQLSTATE, else by text",
    "by_status": "by status",
    "by_tls_reason": "if it was cut",
    "by_connect_error": "yes, if it can get better",
    "by_http2_event": "yes",
}
SENT = {"yes": True, "no": False, "unknown": None}
CODES = sorted(name for name, value in vars(_codes).items() if name.isupper() and isinstance(value, dict))


def tables(kind: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Return the tables after a comment of this kind: the words of the comment, and the rows."""
    for words, table in re.findall(rf"<!-- {kind}:? ?(.*?) ?-->\n\|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        yield words.split(), rows


def errors() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for modules, rows in tables("errors"):
        for name, *cells in rows:
            for module in modules or [""]:
                full = f"{module}.{name.strip('`')}".lstrip(".")
                assert full not in found, f"{full} is on the page twice"
                found[full] = cells
    return found


def cells_of(entry: Entry) -> list[str]:
    if entry is None:
        return ["no", "", "", ""]
    if not isinstance(entry, Verdict):
        return [WORDS[entry.__name__]]
    sent = next(word for word, value in SENT.items() if value is entry.sent)
    return ["yes", str(entry.kind), sent, str(entry.reason)]


def test_the_page_lists_exactly_the_known_errors() -> None:
    assert errors().keys() == TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_the_page_describes_the_verdict_of_each_error(name: str) -> None:
    expected = cells_of(TABLE[name])
    assert errors()[name][: len(expected)] == expected


def test_every_description_is_used() -> None:
    readers = {e.__name__ for e in TABLE.values() if e is not None and not isinstance(e, Verdict)}
    assert readers == WORDS.keys()


@pytest.mark.parametrize("name", CODES)
def test_the_page_lists_the_codes(name: str) -> None:
    found: dict[str, Verdict] = {}
    for words, rows in tables("codes"):
        for codes, kind, sent, reason in rows if words == [name] else []:
            verdict = Verdict("retry", kind, None, SENT[sent], reason)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            found.update(dict.fromkeys(re.findall("`(.*?)`", codes), verdict))
    table: dict[object, Verdict | None] = getattr(_codes, name)
    assert found == {str(code): verdict for code, verdict in table.items() if verdict is not None}


@pytest.mark.parametrize("word", sorted(_codes.QUOTA))
def test_the_page_names_the_words_for_exhausted_quotas(word: str) -> None:
    assert f"`{word}`" in PAGE
