"""Shortens texts that are too long to show."""

from typing import Any


def truncate(text: str, limit: int) -> str:
    """Return *text*, cut to *limit* characters with an ellipsis if it is longer.

    Example:
        >>> truncate("beginning, middle and end", 12)
        'beginning, …'
    """
    return text if len(text) <= limit else f"{text[: max(0, limit - 1)]}…"


def truncate_middle(text: str, limit: int, mark: str | None = None) -> str:
    """Return *text*, or if it is longer than *limit* its beginning, a *mark* and its end.

    The mark, which is not counted, is by default a line that says how much is left out.

    Example:
        >>> print(truncate_middle("beginning, middle and end", 12))
        beginn
        [... 13 characters left out ...]
        nd end
        >>> truncate_middle("beginning, middle and end", 12, "…")
        'beginn…nd end'
    """
    if len(text) <= limit:
        return text
    middle = (limit + 1) // 2
    return join_ends(text[:middle], text[middle:], 0, limit, mark)


def join_ends(head: str, tail: str, lost: int, limit: int, mark: str | None = None) -> str:
    """Return the beginning of *head* and the end of *tail*, between which *lost* are missing."""
    first, last = head[: (limit + 1) // 2], tail[max(0, len(tail) - limit // 2) :]
    if mark is None:
        left_out = lost + len(head) + len(tail) - len(first) - len(last)
        mark = f"\n[... {left_out:,} characters left out ...]\n"
    return f"{first}{mark}{last}"


def truncated_repr(value: Any, limit: int = 60) -> str:
    """Return the repr of *value*, cut to *limit* characters; never raise.

    Example:
        >>> truncated_repr("beginning, middle and end", 12)
        "'beginning,…"
    """
    if type(value) is str:
        # The repr of a long text would be built only to be cut.
        value = value[: limit + 1]
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - foreign code; the message around it is needed
        text = f"<{type(value).__name__}: its __repr__ raised {type(error).__name__}>"
    return truncate(text, limit)
