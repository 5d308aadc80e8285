"""What a program wrote for a terminal, as plain text."""

import re
from typing import Final

_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and the like
    r"|\x1b[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)
_LINE_ENDS: Final = re.compile(r"\r+\n?")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def plain_text(text: str) -> str:
    r"""Return *text* without escape sequences and control characters.

    A carriage return ends a line, so that nothing is overwritten.

    Example:
        >>> plain_text("\x1b[31mred\x1b[0m\r\n10%\r20%\n")
        'red\n10%\n20%\n'
    """
    return _CONTROLS.sub("", _LINE_ENDS.sub("\n", _ESCAPES.sub("", text)))
