"""What to say where a library that we stand on is not installed."""

from __future__ import annotations

__all__ = ["missing_extra"]


def missing_extra(library: str, error: ModuleNotFoundError, module: str | None = None) -> ModuleNotFoundError:
    """Return what to raise: which library it is, and how to get it for our ``module`` of that name."""
    if error.name != library:
        return error  # it is there, and lacks something itself
    ours = module or library
    message = f"redouble.{ours} needs {library}: pip install 'redouble[{ours.rpartition('.')[2]}]'"
    return ModuleNotFoundError(message, name=library)
