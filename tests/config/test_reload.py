"""The active configuration: loaded, reloaded, and kept unchanged if the new one is invalid."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import Any

import pytest

from redouble import Retry
from redouble.config._reload import Reload, load, policies, reload
from redouble.errors import ConfigError


def document_with(attempts: int = 5, **more: Any) -> dict[str, Any]:
    return {"policies": {"payments": {"attempts": attempts}}, **more}


def test_policies_returns_a_policy_by_its_name() -> None:
    config = load(document_with(), environ=None)
    assert config.policies["payments"] == Retry(attempts=5, name="payments")
    assert policies("payments").current is config.policies["payments"]


def test_policies_returns_a_pipeline_by_its_name() -> None:
    config = load(document_with(pipelines={"all": {"layers": ["policies.payments"]}}))
    assert policies("all").current is config.pipelines["all"]


def test_the_same_name_is_the_same_object() -> None:
    before = policies("payments")
    assert policies("payments") is before
    load(document_with())
    reload()
    assert policies("payments") is before


def test_using_a_name_before_load_raises() -> None:
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


def test_an_unknown_name_raises() -> None:
    load(document_with())
    with pytest.raises(ConfigError, match=r"no policy or pipeline 'payment'; did you mean 'payments'\?"):
        policies("payment")


@pytest.mark.parametrize("name", [None, 5, b"payments", ["payments"], policies])
def test_a_name_must_be_a_text(name: Any) -> None:
    with pytest.raises(TypeError, match=r"write the name of a policy or a pipeline, such as 'payments'"):
        policies(name)


# --------------------------------------------------------------------------------- sources


def test_load_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[policies.payments]\nattempts = 5")
    for source in (path, str(path)):
        load(source)
        assert policies("payments").attempts == 5


def test_reload_reads_the_found_file_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`load()` finds the file in the working directory; `reload()` reads that file again."""
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


def test_a_valid_source_passed_to_reload_replaces_the_previous_one(tmp_path: Path) -> None:
    """Later reloads read it again."""
    path = tmp_path / "some.toml"
    path.write_text("[policies.payments]\nattempts = 6")
    load(document_with(5))
    payments = policies("payments")
    assert reload(path).ok
    assert payments.attempts == 6
    assert not reload({"policies": 5}).ok
    path.write_text("[policies.payments]\nattempts = 7")
    assert reload().changed == ("policies.payments",)
    assert payments.attempts == 7
    assert reload(document_with(8)).ok
    assert payments.attempts == 8


def test_reload_reads_a_changed_mapping_again() -> None:
    document = document_with(5)
    load(document)
    document["policies"]["payments"]["attempts"] = 6
    reload()
    assert policies("payments").attempts == 6


def test_each_reload_reads_the_variables_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDOUBLE_POLICIES__PAYMENTS__ATTEMPTS", "7")
    load(document_with())
    assert policies("payments").attempts == 7
    monkeypatch.setenv("REDOUBLE_POLICIES__PAYMENTS__ATTEMPTS", "8")
    assert reload().changed == ("policies.payments",)
    assert policies("payments").attempts == 8
    load(document_with(), environ={"REDOUBLE_POLICIES__PAYMENTS__ATTEMPTS": "9"})
    reload()
    assert policies("payments").attempts == 9
    load(document_with(), environ=None)
    assert policies("payments").attempts == 5


@pytest.mark.parametrize("source", [5, b"redouble.toml", ["redouble.toml"], Retry()])
def test_source_must_be_a_mapping_or_a_path(source: Any) -> None:
    with pytest.raises(TypeError, match=r"^source=.*: write a mapping, or the path of a TOML file"):
        load(source)


# ---------------------------------------------------------------------------------- errors


def test_an_invalid_load_changes_nothing() -> None:
    config = load(document_with())
    payments = policies("payments")
    before = payments.current
    with pytest.raises(ConfigError) as raised:
        load(document_with(0))
    assert raised.value.path == "policies.payments.attempts"
    assert payments.current is before is config.policies["payments"]
    assert reload().changed == (), "the source of the last valid configuration is read again"


def test_after_an_invalid_first_load_a_valid_one_works() -> None:
    payments = policies("payments")
    with pytest.raises(ConfigError, match=r"policies\.payments\.attempts"):
        load(document_with(0))
    with pytest.raises(ConfigError, match="no configuration is loaded yet"):
        payments.current  # noqa: B018
    load(document_with())
    assert payments.attempts == 5


def test_an_invalid_reload_keeps_the_last_valid_one_and_is_logged(
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
        result = reload()
        assert (result.ok, result.changed, payments.current) == (False, (), before)
        assert str(path) in str(result.error)
        [record] = caplog.records
        assert (record.name, record.levelno) == ("redouble", logging.ERROR)
        assert record.getMessage() == (
            f"the configuration was not reloaded, and the last valid one stays active: {result.error}"
        )
    path.unlink()
    assert isinstance(reload().error, ConfigError)
    assert payments.current is before


def test_a_valid_reload_logs_what_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "redouble")
    load(document_with(gates={"db": {"type": "throttle"}}, budgets={"own": {}}))
    reload(document_with(6, gates={"db": {"type": "throttle", "k": 3}}, budgets={"other": {}}))
    reload()
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.INFO, f"the configuration was reloaded: {changed}")
        for changed in ("budgets.other, budgets.own, gates.db, policies.payments", "nothing has changed")
    ]


def test_a_configuration_must_have_every_name_in_use() -> None:
    payments = policies("payments")
    with pytest.raises(ConfigError, match=r"no policy or pipeline 'payments'.*code uses redouble\.policies"):
        load({"policies": {"payment": {}}})
    load(document_with())
    result = reload({"policies": {"payment": {}}})
    assert result.error is not None
    assert result.error.path == "policies.payments"
    assert payments.attempts == 5
    del payments, result
    gc.collect()
    assert reload({"policies": {"payment": {}}}).ok, "the name is no longer in use"


def test_a_policy_that_does_not_fit_a_decorated_function_is_refused() -> None:
    payments, other = policies("payments"), policies("other")

    @payments
    def blocking() -> None: ...

    document = {"policies": {"payments": {"attempt_timeout": "2s"}, "other": {"attempts": 9}}}
    with pytest.raises(ConfigError, match=r"blocking, which uses it: attempt_timeout=") as raised:
        load(document)
    assert raised.value.path == "policies.payments"
    load({"policies": {"payments": {}, "other": {}}})
    assert not reload(document).ok
    assert (other.attempts, payments.attempt_timeout) == (4, None), "the other policy has not changed either"
    with pytest.raises(TypeError, match="attempt_timeout="):
        reload({"policies": {"payments": {}, "other": {"attempt_timeout": 1}}})
        other(blocking)
