"""Names for tools that every model provider accepts."""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

_LONGEST: Final = 64
_DIGEST: Final = 8  # characters that distinguish long names with a common prefix
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")


def fit_names(names: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Return a valid name for each of *names*, all different.

    Example:
        >>> fit_names(["read_file", "read.file", "2d plot"], prefix="fs")
        {'read_file': 'fs_read_file', 'read.file': 'fs_read_file_2', '2d plot': 'fs_2d_plot'}
    """
    wanted = {name: f"{prefix}_{name}" if prefix else name for name in names}
    fitting = {name: _fit(text) for name, text in wanted.items()}
    taken = {text for name, text in wanted.items() if fitting[name] == text}
    for name, text in fitting.items():
        if text != wanted[name]:
            fitting[name] = _free(text, taken)
            taken.add(fitting[name])
    return fitting


def _fit(text: str) -> str:
    fit = _UNFIT.sub("_", text)
    if not fit or not (fit[0].isalpha() or fit[0] == "_"):
        fit = f"_{fit}"
    if len(fit) <= _LONGEST:
        return fit
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    return f"{fit[: _LONGEST - _DIGEST - 1]}_{digest}"


def _free(text: str, taken: set[str]) -> str:
    number, free = 1, text
    while free in taken:
        number += 1
        free = f"{text[: _LONGEST - len(str(number)) - 1]}_{number}"
    return free
