"""Journals and files of another format version, which are refused."""


def other_version(found: int, known: int, remedy: str) -> str:
    """Return why a journal of the version *found* cannot be used, and what to do instead."""
    age = "a newer" if found > known else "an older"
    return (
        f"{age} treefold has written it (version {found}, this one reads {known}): use that"
        f" treefold for it, or {remedy}"
    )
