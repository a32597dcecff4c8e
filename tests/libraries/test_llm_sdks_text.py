"""The text and the final message of an SDK's stream through an `llm.Model`, which also passes on its name."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import llm
from tests.support.llm.sdk_models import (
    HELLO,
    IGNORE_UNCLOSED_GENERATORS,
    SdkClient,
    Server,
    model,
    words,
)

pytestmark = IGNORE_UNCLOSED_GENERATORS

FINAL = {
    "openai": "get_final_completion",
    "responses": "get_final_response",
    "anthropic": "get_final_message",
}


def read_text(
    sdk_client: SdkClient, server: Server, script: str, most: int | None, final: bool
) -> tuple[str, Any]:
    """Read the text of a stream, at most so many pieces, and then its final message if it is wanted."""
    fn, question = sdk_client.opener(sdk_client.client(server.url(sdk_client.script(script))), "manager")
    del question["model"]
    text: list[str] = []

    def read() -> Any:
        with model("acme").stream(fn, **question) as answer:
            for _ in range(0 if most == 0 else 1):
                for piece in answer.text_stream:
                    text.append(piece)
                    if len(text) == most:
                        break
            return getattr(answer, FINAL[sdk_client.kind])() if final else None

    async def aread() -> Any:
        async with model("acme").stream(fn, **question) as answer:
            for _ in range(0 if most == 0 else 1):
                async for piece in answer.text_stream:
                    text.append(piece)
                    if len(text) == most:
                        break
            return await getattr(answer, FINAL[sdk_client.kind])() if final else None

    value = sdk_client.run(aread if sdk_client.loop else read)
    return "".join(text), value


def test_the_text_is_that_of_the_sdk(sdk_client: SdkClient, server: Server) -> None:
    assert read_text(sdk_client, server, "503,OK", None, final=False)[0] == f"{HELLO} 2"


@pytest.mark.parametrize("most", [0, 1, None])
def test_the_final_message_is_whole(sdk_client: SdkClient, server: Server, most: int | None) -> None:
    """However much of it was read before."""
    final = read_text(sdk_client, server, "OK~cut=0,OK", most, final=True)[1]
    assert words(final) == f"{HELLO} 2"


@pytest.mark.parametrize("fault", ["cut", "end"])
def test_a_stream_that_breaks_has_no_final_message(sdk_client: SdkClient, server: Server, fault: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  the SDK's own error, or `CutShort`
        read_text(sdk_client, server, f"OK~{fault}=5,OK", 0, final=True)
    assert fault == "cut" or isinstance(caught.value, llm.CutShort)
