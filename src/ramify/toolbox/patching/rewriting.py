"""What becomes of a text that somebody has written anew, without regard to its line ends."""

from difflib import SequenceMatcher

from ramify.toolbox.editing.lines import LINE_END, flattened, is_ended
from ramify.toolbox.patching.rows import split_rows


def with_line_ends_of(old: bytes, new: bytes) -> bytes:
    r"""Return *new* with the line ends that *old* has: each line its own, and new ones likewise.

    Example:
        >>> with_line_ends_of(b"a\r\nb\r\nc", b"a\nb\nB\nc\n")
        b'a\r\nb\r\nB\r\nc'
    """
    if not old:
        return new
    ends: list[bytes] = LINE_END.findall(old) or [b"\n"]
    ours, theirs = _ended_rows(old), _ended_rows(new)
    made: list[bytes] = []
    for kind, first, last, start, stop in matching(ours, theirs).get_opcodes():
        for number in range(start, stop):
            at = first + number - start if kind == "equal" else last - 1
            made += [theirs[number].removesuffix(b"\n"), ends[max(0, min(at, len(ends) - 1))]]
    return b"".join(made if is_ended(old) else made[:-1])


def _ended_rows(text: bytes) -> list[bytes]:
    return split_rows(flattened(text) + b"\n" * (not is_ended(text)))


def count_changes(old: bytes, new: bytes) -> tuple[int, int]:
    r"""Return how many lines were added and how many removed.

    Example:
        >>> count_changes(b"a\nb\nc\n", b"a\nB\nc\nd\n")
        (2, 1)
    """
    codes = matching(split_rows(old), split_rows(new)).get_opcodes()
    changes = [code for code in codes if code[0] != "equal"]
    return sum(code[4] - code[3] for code in changes), sum(code[2] - code[1] for code in changes)


def matching(old: list[bytes], new: list[bytes]) -> SequenceMatcher[bytes]:
    """Return what the two have in common; for very long ones not quite all of it."""
    return SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > 10_000)
