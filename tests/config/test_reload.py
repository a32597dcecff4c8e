"""The configuration in force: loaded, read again, and refused as a whole if anything is wrong with it."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import Any

import pytest

from redouble import Retry
from redouble.config import _reload as _live
from redouble.config._reload import ConfigStore, Reload, load, policies, reload
from redouble.errors import ConfigError


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without a configuration, and leave none behind."""
    monkeypatch.setattr(_live, "LIVE", ConfigStore())


def said(attempts: int = 5, **more: Any) -> dict[str, Any]:
    return {"policies": {"payments": {"attempts": attempts}}, **more}


def test_a_policy_by_its_name() -> None:
    config = load(said(), environ=None)
    assert config.policies["payments"] == Retry(attempts=5, name="payments")
    assert policies("payments").current is config.policies["payments"]


def test_a_pipeline_by_its_name() -> None:
    config = load(said(pipelines={"all": {"layers": ["policies.payments"]}}))
    assert policies("all").current is config.pipelines["all"]


def test_the_same_name_is_the_same_object() -> None:
    before = policies("payments")
    assert policies("payments") is before
    load(said())
    reload()
    assert policies("payments") is before


def test_without_a_configuration() -> None:
    payments, calls = policies("payments"), list[int]()
    decorated = payments(calls.append)
    for use in (
        lambda: decorated(1),
        lambda: payments.call(calls.append, 1),
        lambda: payments.attempts,
        lambda: payments.current,
        lambda: payments.run(calls.append, 1),
        lambda: list(payments),
    ):
        with pytest.raises(
            ConfigError, match=r"^no configuration is loaded yet: call redouble\.config\.load"
        ):
            use()
    with pytest.raises(ConfigError, match=r"^there is nothing to reload yet: call redouble\.config\.load"):
        reload()
    assert not calls


def test_a_name_that_is_not_there() -> None:
    load(said())
    with pytest.raises(ConfigError, match=r"no policy or pipeline 'payment'; did you mean 'payments'\?"):
        policies("payment")


@pytest.mark.parametrize("name", [None, 5, b"payments", ["payments"], policies])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(TypeError, match=r"write the name of a policy or a pipeline, such as 'payments'"):
        policies(name)


# --------------------------------------------------------------------------------- sources


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[policies.payments]\nattempts = 5")
    for source in (path, str(path)):
        load(source)
        assert policies("payments").attempts == 5


def test_the_file_of_the_working_directory_wherever_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found once, and read again where it was found."""
    payments = policies("payments")
    (tmp_path / "pyproject.toml").write_text("[tool.redouble.policies.payments]\nattempts = 5")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"found neither redouble\.toml"):
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path / "empty")
        load()
    monkeypatch.chdir(tmp_path)
    load()
    assert payments.attempts == 5
    (tmp_path / "pyproject.toml").write_text("[tool.redouble.policies.payments]\nattempts = 6")
    monkeypatch.chdir("/")
    assert reload() == Reload(("policies.payments",))
    assert payments.attempts == 6


def test_reloading_from_somewhere_else(tmp_path: Path) -> None:
    """What is passed is read from then on, if it is valid."""
    path = tmp_path / "some.toml"
    path.write_text("[policies.payments]\nattempts = 6")
    load(said(5))
    payments = policies("payments")
    assert reload(path).ok
    assert payments.attempts == 6
    assert not reload({"policies": 5}).ok
    path.write_text("[policies.payments]\nattempts = 7")
    assert reload().changed == ("policies.payments",)
    assert payments.attempts == 7
    assert reload(said(8)).ok
    assert payments.attempts == 8


def test_a_mapping_that_was_changed_is_read_again() -> None:
    document = said(5)
    load(document)
    document["policies"]["payments"]["attempts"] = 6
    reload()
    assert policies("payments").attempts == 6


def test_variables_are_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDOUBLE_PAYMENTS_ATTEMPTS", "7")
    load(said())
    assert policies("payments").attempts == 7
    monkeypatch.setenv("REDOUBLE_PAYMENTS_ATTEMPTS", "8")
    assert reload().changed == ("policies.payments",)
    assert policies("payments").attempts == 8
    load(said(), environ={"REDOUBLE_PAYMENTS_ATTEMPTS": "9"})
    reload()
    assert policies("payments").attempts == 9
    load(said(), environ=None)
    assert policies("payments").attempts == 5


@pytest.mark.parametrize("source", [5, b"redouble.toml", ["redouble.toml"], Retry()])
def test_what_is_no_source(source: Any) -> None:
    with pytest.raises(TypeError, match=r"^source=.*: write a mapping, or the path of a TOML file"):
        load(source)


# ---------------------------------------------------------------------------------- errors


def test_what_is_wrong_changes_nothing() -> None:
    config = load(said())
    payments = policies("payments")
    before = payments.current
    with pytest.raises(ConfigError) as raised:
        load(said(0))
    assert raised.value.path == "policies.payments.attempts"
    assert payments.current is before is config.policies["payments"]
    assert reload().changed == (), "it is read again from where the last good one was"


def test_a_first_one_that_is_wrong() -> None:
    payments = policies("payments")
    with pytest.raises(ConfigError, match=r"policies\.payments\.attempts"):
        load(said(0))
    with pytest.raises(ConfigError, match="no configuration is loaded yet"):
        payments.current  # noqa: B018
    load(said())
    assert payments.attempts == 5


def test_a_bad_reload_keeps_the_last_good_one_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[policies.payments]\nattempts = 5")
    load(path)
    payments = policies("payments")
    before = payments.current
    for text in ("[policies.payments]\natempts = 5", "[policies.payments", "[policies.other]"):
        caplog.clear()
        path.write_text(text)
        told = reload()
        assert (told.ok, told.changed, payments.current) == (False, (), before)
        assert str(path) in str(told.error)
        [record] = caplog.records
        assert (record.name, record.levelno) == ("redouble", logging.ERROR)
        assert record.getMessage() == (
            f"the configuration is not reloaded, and the last good one stays: {told.error}"
        )
    path.unlink()
    assert isinstance(reload().error, ConfigError)
    assert payments.current is before


def test_a_good_reload_says_what_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "redouble")
    load(said(gates={"db": {"type": "throttle"}}, budgets={"own": {}}))
    reload(said(6, gates={"db": {"type": "throttle", "k": 3}}, budgets={"other": {}}))
    reload()
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.INFO, f"the configuration is reloaded: {changed}")
        for changed in ("budgets.other, budgets.own, gates.db, policies.payments", "nothing has changed")
    ]


def test_a_name_that_code_uses_must_be_there() -> None:
    payments = policies("payments")
    with pytest.raises(ConfigError, match=r"no policy or pipeline 'payments'.*code uses redouble\.policies"):
        load({"policies": {"payment": {}}})
    load(said())
    told = reload({"policies": {"payment": {}}})
    assert told.error is not None
    assert told.error.path == "policies.payments"
    assert payments.attempts == 5
    del payments, told
    gc.collect()
    assert reload({"policies": {"payment": {}}}).ok, "nobody uses it any more"


def test_what_cannot_be_done_for_a_function_is_refused() -> None:
    payments, other = policies("payments"), policies("other")

    @payments
    def blocking() -> None: ...

    document = {"policies": {"payments": {"attempt_timeout": "2s"}, "other": {"attempts": 9}}}
    with pytest.raises(ConfigError, match=r"blocking goes by it, and cannot: attempt_timeout=") as raised:
        load(document)
    assert raised.value.path == "policies.payments"
    load({"policies": {"payments": {}, "other": {}}})
    assert not reload(document).ok
    assert (other.attempts, payments.attempt_timeout) == (4, None), "not even the other one has changed"
    with pytest.raises(TypeError, match="attempt_timeout="):
        reload({"policies": {"payments": {}, "other": {"attempt_timeout": 1}}})
        other(blocking)
