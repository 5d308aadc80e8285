r"""Lines as diffs have them: only ``\n`` ends one, and each has its end with it."""

import re
from typing import Final

_ROW: Final = re.compile(rb"[^\n]*\n|[^\n]+")


def split_rows(body: bytes) -> list[bytes]:
    r"""Return the lines of *body*, of which the last need not be ended.

    Example:
        >>> split_rows(b"a\r\n\nb")
        [b'a\r\n', b'\n', b'b']
    """
    return _ROW.findall(body)


def bare(row: bytes) -> bytes:
    r"""Return a line without its end, and without ``\r`` that a system may have added to it."""
    return row.rstrip(b"\r\n")


def end_of(row: bytes) -> bytes:
    """Return the end of a line, which is empty if it has none."""
    if row.endswith(b"\r\n"):
        return b"\r\n"
    return b"\n" if row.endswith(b"\n") else b""
