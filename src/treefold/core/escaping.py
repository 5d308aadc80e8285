"""Makes text of functions and models safe to print: it cannot move the cursor or fake a line."""

from treefold.core.truncation import truncate


def printable(text: str) -> str:
    r"""Return *text* on one line, with each unprintable character as its escape sequence.

    Example:
        >>> print(printable("two\nlines, \x1b[31mred"))
        two\nlines, \x1b[31mred
    """
    if text.isprintable():  # the usual case
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def one_line(text: str, limit: int = 400) -> str:
    r"""Return *text*, cut to *limit* characters, printable, with every white space as one space.

    Example:
        >>> print(one_line("two\n  lines"))
        two lines
    """
    return printable(" ".join(truncate(text, limit).split()))
