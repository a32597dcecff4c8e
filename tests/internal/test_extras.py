"""A module whose library is not installed raises an error that names the extra to install."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import redouble
from redouble._internal.extras import missing_extra

SOURCE = str(Path(redouble.__file__).parent.parent)

CLIENT_DEPENDENCIES = ("anyio", "httpcore", "multidict", "urllib3", "yarl")


@pytest.mark.parametrize("library", ["aiohttp", "httpx", "httpx2", "requests"])
def test_a_missing_client_library_names_its_extra(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (library, *CLIENT_DEPENDENCIES):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    for name in [name for name in sys.modules if name.startswith(("redouble.http._", f"redouble.{library}"))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"redouble.{library}")
    assert str(caught.value) == f"redouble.{library} needs {library}: pip install 'redouble[{library}]'"
    assert caught.value.name == library


@pytest.mark.parametrize(
    ("module", "library"),
    [("structlog", "structlog"), ("prometheus", "prometheus_client"), ("opentelemetry", "opentelemetry")],
)
def test_a_missing_instrument_library_names_its_extra(
    module: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra has the name of the instrument."""
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, f"redouble.instruments.{module}", raising=False)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"redouble.instruments.{module}")
    message = f"redouble.instruments.{module} needs {library}: pip install 'redouble[{module}]'"
    assert (str(caught.value), caught.value.name) == (message, library)


def test_other_instruments_need_no_library() -> None:
    code = f"import sys; sys.path.append({SOURCE!r}); from redouble.instruments import logging, memory"
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", code]  # without installed packages
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own code
    assert done.returncode == 0, done.stderr


def test_a_missing_dependency_of_the_library_is_reported_unchanged() -> None:
    error = ModuleNotFoundError("No module named 'h11'", name="h11")
    assert missing_extra("httpx", error) is error
