"""Suggests a known name for a misspelt one."""

from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str], *, then: str = "") -> str:
    """Return ``did you mean 'x'?`` and *then* if a known name is similar to *name*, else nothing.

    Example:
        >>> did_you_mean("sotre", ["store", "json"])
        "did you mean 'store'?"
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only a misspelt name needs it

    near = get_close_matches(str(name), list(known), n=1)
    return f"did you mean {near[0]!r}?{then}" if near else ""
