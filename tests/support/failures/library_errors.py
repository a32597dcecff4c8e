"""Look-alikes of the errors of other libraries: classes of the same module and name."""

from __future__ import annotations


def class_named(name: str, *bases: type) -> type[Exception]:
    """Return a class of this module and name."""
    module, _, own = name.rpartition(".")
    return type(own, bases or (Exception,), {"__module__": module})


def error_named(name: str, *args: object, base: type = Exception, **attributes: object) -> Exception:
    """Return an error of a class of this module and name, with these attributes."""
    error = class_named(name, base)(*args)
    for attribute, value in attributes.items():
        setattr(error, attribute, value)
    return error
