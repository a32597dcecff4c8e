"""What to say where a client's library is not installed."""

from __future__ import annotations

__all__ = ["missing"]


def missing(library: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return what to raise: which library it is, and how to get it."""
    if error.name != library:
        return error  # it is there, and lacks something itself
    message = f"redouble.{library} needs {library}: pip install 'redouble[{library}]'"
    return ModuleNotFoundError(message, name=library)
