"""Scripts of the misbehaving server: parsing, and errors for invalid ones."""

from __future__ import annotations

import re
from contextlib import closing, suppress
from http.client import HTTPConnection

import pytest
from hypothesis import given
from hypothesis.strategies import text

from tests.support.servers import Server, parse, value
from tests.support.servers.script import Fault


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("", "cannot read step ''"),
        ("200,,200", "cannot read step ''"),
        ("20", "there is no step '20'"),
        ("199", "there is no step '199'"),
        ("1000", "there is no step '1000'"),
        ("٢٠٠", "begins with its name"),
        ("boom", "there is no step 'boom'"),
        ("200*0", "once at least"),
        ("200*x", "needs a whole number"),
        ("200*99999", "at most"),
        ("200*6000,200*6000", "more than 10000 steps"),
        ("200=3", "200 takes no number"),
        ("200~boom", "200 has no option 'boom'"),
        ("200~events=3", "200 has no option 'events'"),
        ("200~end=3", "200 has no option 'end'"),
        ("200~error=3", "200 has no option 'error'"),
        ("openai~end", "end takes a value"),
        ("openai~end=1~error=2", "said twice"),
        ("openai~error_type=overloaded_error", "error_type needs the fault error"),
        ("openai~end=1~error_type=overloaded_error", "error_type needs the fault error"),
        ("anthropic~piece=0", "one byte at least"),
        ("rst~ra=2", "rst has no option 'ra'"),
        ("stall~late", "stall has no option 'late'"),
        ("rst~h.x=1", "rst sends no headers"),
        ("200~ra", "ra takes a value"),
        ("200~chunked=1", "chunked takes no value"),
        ("200~ra=1*2", "said after the name"),
        ("200~size=-1", "size needs a whole number"),
        ("200~cut=1_0", "cut needs a whole number"),
        ("rsthead=x", "rsthead needs a whole number"),
        ("200~drip=nan", "drip needs seconds"),
        ("200~drip=soon", "drip needs seconds"),
        ("200~cut=1~rst=2", "said twice"),
        ("200~body=a~size=1", "either body or size"),
        ("200~piece=0", "one byte at least"),
        ("200~h.a b=1", "cannot be the name of a header"),
        ("200~ra=1%0D%0AX: 2", "line break"),
    ],
)
def test_an_invalid_script_raises_with_a_reason(script: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        parse(script)
    with Server() as server, closing(HTTPConnection("127.0.0.1", server.port, timeout=30)) as client:
        with pytest.raises(ValueError, match=re.escape(why)):
            server.url(script)
        client.request("POST", f"/s/mine/{value(script)}/", b"body")
        response = client.getresponse()
        assert response.status == 400
        assert why in response.read().decode()
        assert server.ledger("mine") == []


def test_steps_are_parsed() -> None:
    first, second, third = parse("503~ra=2~cut=3,rsthead=9*2")
    assert (first.status, first.headers, first.fault) == (503, (("Retry-After", "2"),), Fault("cut", 3))
    assert second is third
    assert (second.status, second.head_fault, second.text) == (200, Fault("rst", 9), "rsthead=9*2")


@given(text())
def test_any_text_is_a_script_or_an_error(script: str) -> None:
    with suppress(ValueError):
        assert parse(script)


@given(text())
def test_any_text_can_be_a_value(written: str) -> None:
    (step,) = parse(f"200~body={value(written)}")
    assert step.body == written.encode()
