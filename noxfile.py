"""The sessions of `scripts/test`: the suite on one Python with coverage, then on the others.

In every session the tests marked ``quiet`` run first and by themselves, because their limits are real and
short. The rest runs on all processors. Tests marked ``one_python`` run in the session ``coverage`` only.
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

# Four at once, because these tests spend their time waiting and need a tenth of a processor. A test that fails
# runs once more, because another program may have kept the machine busy.
QUIET = ("-n", "4", "--reruns", "1")
SPREAD = ("-n", "auto", "--dist", "worksteal")


@nox.session(python=False)
def coverage(session: nox.Session) -> None:
    """Run every test on the Python that runs nox, and require full branch coverage."""
    measure = (sys.executable, "-m", "coverage")
    session.run(*measure, "erase", external=True)
    session.run(*measure, "run", "-m", "pytest", "-q", "-m", "quiet", *QUIET, external=True)
    session.run(*measure, "run", "-m", "pytest", "-q", "-m", "not quiet", *SPREAD, external=True)
    session.run(*measure, "combine", "--quiet", external=True)
    session.run(*measure, "report", "--fail-under=100", external=True)


@nox.session(python=OTHERS)
def tests(session: nox.Session) -> None:
    """Run the tests that may depend on the version of Python, on another one if the machine has it."""
    _install(session, "test")
    session.run("pytest", "-q", "-m", "quiet and not one_python", *QUIET)
    session.run("pytest", "-q", "-m", "not quiet and not one_python", *SPREAD)


@nox.session
def libraries(session: nox.Session) -> None:
    """Run the tests that need the SDKs and drivers, which the other tests do without."""
    _install(session, "test", "libraries")
    session.run("pytest", "-q", *SPREAD, "tests/libraries")


def _install(session: nox.Session, *groups: str) -> None:
    options = [option for group in groups for option in ("--group", group)]
    session.install("--quiet", *options, "--editable", ".")
