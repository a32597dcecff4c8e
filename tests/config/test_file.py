"""Files: which one is read, and the errors for one that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redouble.config import from_file
from redouble.config._document import read_document
from redouble.errors import ConfigError

OWN = "[policies.payments]\nattempts = 5\n"
SHARED = "[project]\nname = 'x'\n[tool.redouble.policies.payments]\nattempts = 6\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_is_read_by_its_path(here: Path) -> None:
    (here / "other.toml").write_text(OWN)
    for path in ("other.toml", here / "other.toml"):
        assert from_file(path).policies["payments"].attempts == 5
    assert read_document("other.toml") == ({"policies": {"payments": {"attempts": 5}}}, "other.toml")


def test_pyproject_is_read_from_tool_redouble(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "pyproject.toml").write_text(SHARED)
    assert from_file("sub/pyproject.toml").policies["payments"].attempts == 6
    (here / "sub" / "pyproject.toml").write_text("[tool.other]\n")
    with pytest.raises(ConfigError, match=r"it has no \[tool\.redouble\]") as raised:
        from_file("sub/pyproject.toml")
    assert raised.value.path == "sub/pyproject.toml"


def test_redouble_toml_wins_over_pyproject(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"found neither redouble\.toml nor a pyproject\.toml with \[tool"):
        from_file()
    (here / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(ConfigError, match="found neither"):
        from_file()
    (here / "pyproject.toml").write_text(SHARED)
    assert from_file().policies["payments"].attempts == 6
    assert read_document()[1] == "pyproject.toml"
    (here / "redouble.toml").write_text(OWN)
    assert from_file().policies["payments"].attempts == 5
    assert read_document()[1] == "redouble.toml"


def test_variables_override_the_file(here: Path) -> None:
    (here / "redouble.toml").write_text(OWN)
    assert (
        from_file(environ={"REDOUBLE_POLICIES__PAYMENTS__ATTEMPTS": "7"}).policies["payments"].attempts == 7
    )
    with pytest.raises(
        ConfigError, match=r"^REDOUBLE_POLICIES__PAYMENTS__ATTEMPTS: 'x': write .*\(in redouble\.toml\)$"
    ):
        from_file(environ={"REDOUBLE_POLICIES__PAYMENTS__ATTEMPTS": "x"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[policies.a]\natempts = 5", r"^policies\.a\.atempts: .*did you mean 'attempts'\? \(in x\.toml\)$"),
        ("[policies.a]\nattempt_timeout = '0s'", r"^policies\.a\.attempt_timeout: .* \(in x\.toml\)$"),
        ("[policies.a]\ntimeout = 2020-01-01", r"is no duration.* \(in x\.toml\)$"),
        ("[policies.a]\nattempts = inf", r"write a whole number.* \(in x\.toml\)$"),
        ("attempts =", r"^x\.toml: is not valid TOML: "),
        ("a = " + "[" * 10_000, r"^x\.toml: is not valid TOML: "),
        ("a = " + "1" * 5000, r"^x\.toml: is not valid TOML: "),
        (b"a = '\xff'", r"^x\.toml: is not valid TOML: "),
        (b"\x00", r"^x\.toml: is not valid TOML: "),
    ],
)
def test_mistakes_name_the_file(here: Path, content: Any, message: str) -> None:
    (here / "x.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=message):
        from_file("x.toml")


def test_a_byte_order_mark_is_ignored(here: Path) -> None:
    (here / "redouble.toml").write_bytes(b"\xef\xbb\xbf" + OWN.encode())
    assert from_file().policies["payments"].attempts == 5


@pytest.mark.parametrize("path", [5, b"x.toml", {"policies": {}}])
def test_path_must_be_a_text_or_a_path(path: Any) -> None:
    with pytest.raises(TypeError, match=r"^path=.*: write the path of a TOML file"):
        from_file(path)


def test_a_file_that_cannot_be_read_raises_with_its_path(here: Path) -> None:
    (here / "directory.toml").mkdir()
    for path in ("missing.toml", "directory.toml"):
        with pytest.raises(ConfigError, match=rf"^{path}: cannot be read: ") as raised:
            from_file(path)
        assert raised.value.path == path
        assert isinstance(raised.value.__cause__, OSError)


@pytest.mark.parametrize("content", ["tool = 5", "tool.redouble = 5", "[[tool.redouble]]"])
def test_tool_redouble_must_be_a_table(here: Path, content: str) -> None:
    (here / "pyproject.toml").write_text(content)
    for path in (None, "pyproject.toml"):
        with pytest.raises(ConfigError, match=r"^tool.* is not a table.*\(in pyproject\.toml\)$"):
            from_file(path)
