"""Without grpcio, the import error of `redouble.grpc` names the package to install."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("redouble.grpc")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)  # as if it were not installed
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("redouble.grpc")
    assert str(caught.value) == "redouble.grpc needs grpc: pip install 'redouble[grpc]'"
