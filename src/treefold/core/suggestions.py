"""Suggests a known name for a misspelt one."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: object, known: Iterable[str], *, then: str = "", ending: str = "") -> str:
    """Return ``did you mean 'x'?`` and *then* if a known name is similar to *name*, else nothing.

    The name that is shown ends with a colon and *ending*, if there is one.

    Example:
        >>> did_you_mean("sotre", ["store", "json"])
        "did you mean 'store'?"
    """
    near = get_close_matches(str(name), list(known), n=1)
    meant = f"{near[0]}:{ending}" if near and ending else "".join(near)
    return f"did you mean {meant!r}?{then}" if meant else ""
