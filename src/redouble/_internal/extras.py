"""The error for an optional dependency that is not installed."""

from __future__ import annotations


def missing_extra(library: str, error: ModuleNotFoundError, module: str | None = None) -> ModuleNotFoundError:
    """Return the error to raise: it names the library, and the extra of ``redouble.<module>`` to install.

    Without ``module``, our module has the name of the library.
    """
    if error.name != library:
        return error  # the library is installed, and lacks a dependency of its own
    ours = module or library
    message = f"redouble.{ours} needs {library}: pip install 'redouble[{ours.rpartition('.')[2]}]'"
    return ModuleNotFoundError(message, name=library)
