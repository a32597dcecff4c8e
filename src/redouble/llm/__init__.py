"""Calls of language models: time limits, retries, guarded streams, limits on spend.

Make a model once, and call through it::

    model = redouble.llm.Model("openai", "gpt-5", timeouts=60)
    answer = model.call(client.chat.completions.create, model="gpt-5", messages=[...])
    for chunk in model.stream(client.chat.completions.create, model="gpt-5", messages=[...], stream=True):
        ...

It works with the SDKs of OpenAI and Anthropic, blocking and async, with httpx and httpx2, and with any
function of yours; it requires none of these libraries.
"""

from redouble.llm._answer import Answer
from redouble.llm._call import Call, Context, current
from redouble.llm._errors import CutShort, ErrorEvent, SpendExceeded, SpendRefused, StreamError
from redouble.llm._model import Model
from redouble.llm._protocols.base import Protocol
from redouble.llm._rules import table
from redouble.llm._spend.spend import Reservation, Spend
from redouble.llm._spend.usage import Price, Usage
from redouble.llm._text_stream import TextStream
from redouble.llm._timeouts import Timeouts

__all__ = [
    "Answer",
    "Call",
    "Context",
    "CutShort",
    "ErrorEvent",
    "Model",
    "Price",
    "Protocol",
    "Reservation",
    "Spend",
    "SpendExceeded",
    "SpendRefused",
    "StreamError",
    "TextStream",
    "Timeouts",
    "Usage",
    "current",
    "table",
]
