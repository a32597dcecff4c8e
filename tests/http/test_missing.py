"""A client whose library is not installed says what to install."""

from __future__ import annotations

import importlib
import sys

import pytest

from redouble.http._missing import missing

COME_WITH_A_CLIENT = ("anyio", "httpcore", "multidict", "urllib3", "yarl")


@pytest.mark.parametrize("library", ["aiohttp", "httpx", "httpx2", "requests"])
def test_it_says_what_to_install(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (library, *COME_WITH_A_CLIENT):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not there
    for name in [name for name in sys.modules if name.startswith(("redouble.http._", f"redouble.{library}"))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"redouble.{library}")
    assert str(caught.value) == f"redouble.{library} needs {library}: pip install 'redouble[{library}]'"
    assert caught.value.name == library


def test_what_the_library_itself_lacks_is_its_own_business() -> None:
    error = ModuleNotFoundError("No module named 'h11'", name="h11")
    assert missing("httpx", error) is error
