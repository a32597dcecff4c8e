"""Texts of somebody else's as Redouble writes them: bounded, and on one line.

`redouble._redaction.text` hides the secrets in them; it is imported when a text is written.
"""

from __future__ import annotations

LINE_LENGTH = 500  # characters of a text in a message of the log
MAX_LENGTH = 4096  # characters of the text of an error
OWN_FILES = (__file__.rpartition("_redaction")[0], "<redouble>")  # the modules, and the compiled wrappers
FRAMES = 3  # of a traceback that are logged
LOOK_BACK = 100  # characters in which a shortened text may end at a blank
MARK, MARK_END, MARK_LENGTH = " ... [", " characters]", 40
NO_TEXT = "<no text: __str__ failed>"


def shortened(text: str, length: int = MAX_LENGTH) -> str:
    """Return a text of at most this length, which ends with its whole length if it was longer.

    It is cut at a blank if there is one near: half a password looks like none.
    """
    if len(text) <= length:
        return text
    mark = text[text.rfind(MARK) :] if text.endswith(MARK_END) else f"{MARK}{len(text)}{MARK_END}"
    kept = text[: length - MARK_LENGTH]
    blank = max(kept.rfind(sign, len(kept) - LOOK_BACK) for sign in " \n\t")
    return (kept if blank < 0 else kept[:blank]) + mark[-MARK_LENGTH:]


def text_of(error: object) -> str:
    """Return the text of an error, bounded, whatever its ``__str__`` does."""
    try:
        return shortened(str.__str__(str(error)))
    except Exception:
        return NO_TEXT


def without_secrets(text: str) -> str:
    """Return a text without its secrets; all of it is hidden if the rules cannot be loaded."""
    try:
        from redouble._redaction.text import redacted  # noqa: PLC0415  its patterns take 10 ms to compile
    except OSError:  # the process has no file descriptor left
        return "REDACTED"
    return redacted(text)


def shown(text: str) -> str:
    """Return a text without secrets and bounded, on one line."""
    return escaped(without_secrets(shortened(text)))


def shown_repr(value: object) -> str:
    """Return the repr of any object without secrets, bounded, on one line."""
    try:
        return shown(repr(value))
    except Exception:
        return f"<{escaped(type(value).__qualname__)}>"


def field_repr(value: object) -> str:
    """Return the repr of a field of an event or an outcome: of an error its type and its text."""
    if not isinstance(value, BaseException):
        return shown_repr(value)
    text = text_of(value)
    return f"{escaped(type(value).__name__)}({'<no text>' if text is NO_TEXT else repr(shown(text))})"


def described(error: BaseException) -> str:
    """Return the type and the text of an error, without secrets and bounded, on one line."""
    kind, text = escaped(type(error).__name__), text_of(error)
    return f"{kind}: {shown(text)}" if text and text is not NO_TEXT else kind


def shown_end(text: str) -> str:
    """Return the end of a traceback without secrets and bounded, on one line."""
    return shown(text if len(text) <= MAX_LENGTH else text[-MAX_LENGTH:].partition("\n")[2])


def one_line(text: str) -> str:
    """Truncate a text and escape unprintable characters: line breaks, invisible and bidirectional ones."""
    return escaped(text if len(text) <= LINE_LENGTH else text[: LINE_LENGTH - 3] + "...")


def escaped(text: str) -> str:
    """Escape unprintable characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def place_of(error: BaseException) -> str:
    """Return where an error was raised: its last frames outside this package, the innermost one first."""
    from traceback import walk_tb  # noqa: PLC0415  only for the log

    frames = [
        f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(OWN_FILES)
    ]
    return " < ".join(frames[: -FRAMES - 1 : -1]) or "in redouble"
