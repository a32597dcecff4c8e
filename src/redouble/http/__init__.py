"""HTTP without a client: rules, server hints, request bodies, idempotency keys and URL redaction.

Nothing here sends a request. The clients are built on it: `redouble.httpx`, `redouble.httpx2`,
`redouble.requests`, `redouble.aiohttp`.
"""

from __future__ import annotations

from redouble._clients.idempotency_key import Idempotency
from redouble._engine.budgets.retry_budget import HostBudgets
from redouble._failures.codes import IDEMPOTENT
from redouble._failures.retry_after import retry_after
from redouble._redaction.url import redact_url
from redouble.http._exchange import host
from redouble.http._request_body import AsyncReplayable, Replayable, replayable
from redouble.http._rule import HttpRule, rule, sent

__all__ = [
    "IDEMPOTENT",
    "AsyncReplayable",
    "HostBudgets",
    "HttpRule",
    "Idempotency",
    "Replayable",
    "host",
    "redact_url",
    "replayable",
    "retry_after",
    "rule",
    "sent",
]
