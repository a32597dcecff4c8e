"""The sessions of `scripts/test`: the suite on one Python with coverage, then on the others.

In every session the tests marked ``quiet`` run first and by themselves, because their limits are real and
short. The rest runs on all processors. Tests marked ``one_python`` run in the session ``coverage`` only. They
and the tests marked ``stress`` are not measured: other tests cover the same lines, and measuring a test makes
it three times as slow.
"""

from __future__ import annotations

import sys

import nox

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"

FIRST = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHERS = [version for version in ("3.11", "3.12", "3.13", "3.14") if version != FIRST]

# More processes than processors, because these tests spend their time waiting. A test that fails runs once
# more, because another program may have kept the machine busy.
QUIET = ("-m", "quiet", "-n", "8", "--reruns", "1")
SPREAD = ("-n", "auto", "--dist", "worksteal")


@nox.session(python=False)
def coverage(session: nox.Session) -> None:
    """Run every test on the Python that runs nox, and require full branch coverage."""

    def run(*command: str) -> None:
        session.run(sys.executable, "-m", *command, external=True)

    run("coverage", "erase")
    run("coverage", "run", "-m", "pytest", "-q", *QUIET)
    run("coverage", "run", "-m", "pytest", "-q", "-m", "not quiet and not one_python and not stress", *SPREAD)
    run("pytest", "-q", "-m", "one_python or stress", *SPREAD)
    run("coverage", "combine", "--quiet")
    run("coverage", "report", "--fail-under=100")


@nox.session(python=OTHERS)
def tests(session: nox.Session) -> None:
    """Run the tests that may depend on the version of Python, on another one if the machine has it."""
    _install(session, "test")
    session.run("pytest", "-q", *QUIET)
    session.run("pytest", "-q", "-m", "not quiet and not one_python", *SPREAD)


@nox.session
def libraries(session: nox.Session) -> None:
    """Run the tests that need the SDKs and drivers, which the other tests do without."""
    _install(session, "test", "libraries")
    session.run("pytest", "-q", "-n", "4", "--dist", "worksteal", "tests/libraries")  # they wait, too


def _install(session: nox.Session, *groups: str) -> None:
    options = [option for group in groups for option in ("--group", group)]
    session.install("--quiet", *options, "--editable", ".")
