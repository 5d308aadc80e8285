"""How rejected hunks are repaired, and how the result is verified."""

import pytest

from patching import hunks_in, numbered
from treefold.toolbox.patching.repair_agents import (
    MAX_REWRITTEN_BYTES,
    RepairMethod,
    choose_repair_method,
)
from treefold.toolbox.patching.rewriting import count_changes, restore_line_ends, restore_whitespace
from treefold.toolbox.patching.verification import find_missed_hunks, find_unrequested_changes


def hunk(*, context: int = 0, removed: int = 0, added: int = 0) -> str:
    return "@@\n" + " c\n" * context + "-r\n" * removed + "+a\n" * added


@pytest.mark.parametrize(
    ("lines", "patch", "chosen"),
    [
        # more than 30 % affected
        (100, hunk(removed=30), RepairMethod.EDIT),
        (100, hunk(removed=31), RepairMethod.REWRITE),
        (100, hunk(added=31), RepairMethod.REWRITE),
        (100, hunk(removed=15) + hunk(removed=15), RepairMethod.EDIT),
        (100, hunk(removed=15) + hunk(added=16), RepairMethod.REWRITE),
        # a line that is replaced counts once
        (100, hunk(removed=16, added=16), RepairMethod.EDIT),
        # much larger: at least 3 times as many lines
        (30, hunk(context=9, added=1), RepairMethod.EDIT),
        (29, hunk(context=9, added=1), RepairMethod.REWRITE),
        (60, hunk(context=9, added=1) * 2, RepairMethod.EDIT),
        (59, hunk(context=9, added=1) * 2, RepairMethod.REWRITE),
        # nothing there
        (0, hunk(added=1), RepairMethod.REWRITE),
    ],
)
def test_what_is_much_affected_or_not_much_larger_is_rewritten(
    lines: int, patch: str, chosen: RepairMethod
):
    assert choose_repair_method(b"x\n" * lines, hunks_in(patch)) is chosen


def test_what_no_model_can_write_at_once_is_edited():
    patch = hunks_in(hunk(removed=5))
    assert choose_repair_method(b"x" * MAX_REWRITTEN_BYTES, patch) is RepairMethod.REWRITE
    assert choose_repair_method(b"x" * (MAX_REWRITTEN_BYTES + 1), patch) is RepairMethod.EDIT


def test_a_last_line_without_an_end_counts():
    assert choose_repair_method(b"x\nx\nx", hunks_in(hunk(context=1))) is RepairMethod.EDIT


def missed_hunks(before: str, after: str, patch: str) -> list[tuple[int, bytes, bool]]:
    found = find_missed_hunks(before.encode(), after.encode(), hunks_in(patch))
    return [(each.hunk.number, each.line.strip(), each.is_missing) for each in found]


CHANGE = "@@\n one\n-two\n+TWO\n"


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ("one\ntwo\n", "one\nTWO\n", CHANGE),
        ("one\r\ntwo\r\n", "one\r\nTWO\r\n", CHANGE),
        ("ONE\n  two\n", "ONE\n  TWO\n", CHANGE),  # it was fitted in
        ("one\nzwei\n", "one\nTWO\n", CHANGE),  # what was to go was not there
        ("one\nTWO\n", "one\nTWO\n", CHANGE),  # it had been done before
        ("two\none\ntwo\n", "two\none\nTWO\n", CHANGE),  # another stays
        ("a\nb\n", "b\na\n", "@@\n-a\n b\n+a\n"),  # a line that moves
        ("f() {\n}\n", "f() {\n}\n", "@@\n+}\n-{\n"),  # these prove nothing
        ("x\n", "x\ny\ny\n", "@@\n+y\n@@\n+y\n"),
        ("a\n", "  a\n", "@@\n-a\n+  a\n"),
    ],
)
def test_a_hunk_that_made_it_is_not_blamed(before: str, after: str, patch: str):
    assert missed_hunks(before, after, patch) == []


@pytest.mark.parametrize(
    ("before", "after", "patch", "told"),
    [
        ("one\ntwo\n", "one\ntwo\n", CHANGE, [(1, b"TWO", True)]),
        ("one\ntwo\n", "one\n", CHANGE, [(1, b"TWO", True)]),
        ("one\ntwo\n", "one\ntwo\nTWO\n", CHANGE, [(1, b"two", False)]),
        ("two\none\ntwo\n", "two\none\ntwo\nTWO\n", CHANGE, [(1, b"two", False)]),
        ("one\n", "one\nTWO\n", f"{CHANGE}@@\n+three\n+four\n", [(2, b"three", True)]),
        ("x\n", "x\ny\n", "@@\n+y\n@@\n+y\n", [(1, b"y", True), (2, b"y", True)]),
        ("a\n", "a\n", "@@\n-a\n+  a\n", [(1, b"a", True)]),
        ("one\n", "one\n", "@@\n+größer\n", [(1, "größer".encode(), True)]),
        # that such a line is somewhere else proves nothing
        ("a\nx\nb\n", "a\nx\nb\n", "@@\n b\n+x\n", [(1, b"x", True)]),
    ],
)
def test_a_hunk_that_did_not_make_it_is_named_with_a_line_that_shows_it(
    before: str, after: str, patch: str, told: list[tuple[int, bytes, bool]]
):
    assert missed_hunks(before, after, patch) == told


def unrequested(before: str, after: str, patch: str) -> list[str]:
    found = find_unrequested_changes(before.encode(), after.encode(), hunks_in(patch))
    return [line.decode() for line in found]


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ("one\ntwo\n", "one\nTWO\n", CHANGE),
        ("one\r\n  two\r\n", "one\n  TWO\n", CHANGE),
        ("one\nzwei\n", "one\nTWO\n", CHANGE),  # it stands for what was to go
        ("one\nf(\n  two\n)\n", "one\nTWO\n", "@@\n one\n-f(two)\n+TWO\n"),
        ("a\n{\n", "a\n\n}\n", CHANGE),  # these prove nothing
        ("a  \n", "a\nb\n", "@@\n a\n+b\n"),
    ],
)
def test_what_hunks_change_is_not_reported(before: str, after: str, patch: str):
    assert unrequested(before, after, patch) == []


@pytest.mark.parametrize(
    ("before", "after", "patch", "told"),
    [
        ("one\ntwo\nthree\n", "one\nTWO\n", CHANGE, ["three"]),
        ("one\ntwo\nthree\n", "one\nTWO\n# ...the rest\n", CHANGE, ["three", "# ...the rest"]),
        ("one\ntwo\n", "one\nTWO\nTWO\n", CHANGE, ["TWO"]),
        ("one\ntwo\n  x\n", "one\nTWO\nx\n", CHANGE, ["x", "x"]),  # its indentation is lost
        ("two\ntwo\n", "TWO\n", CHANGE, ["two"]),
    ],
)
def test_what_no_hunk_asks_for_is_told(before: str, after: str, patch: str, told: list[str]):
    assert unrequested(before, after, patch) == told


@pytest.mark.parametrize(
    ("old", "new", "made"),
    [
        (b"a\nb\n", b"a\nB\n", b"a\nB\n"),
        (b"a \r\nb\t\r\n", b"a\nB\nb", b"a \r\nB\r\nb\t\r\n"),
        (b"a\nB  \n", b"a\nB\n", b"a\nB\n"),  # as the hunk has it
        (b"a", b"```python\na\nB\n```", b"a\nB"),
        (b"```\na\n```\n", b"```\nB\n```\n", b"```\nB\n```\n"),
        (b"", b"B", b"B\n"),
        (b"a\n", b"", b""),
    ],
)
def test_what_is_changed_by_writing_anew_alone_is_as_it_was(old: bytes, new: bytes, made: bytes):
    assert restore_whitespace(old, new, [b"B\n"]) == made


def test_a_block_that_a_hunk_adds_around_it_all_stays():
    new = b"```\na\n```\n"
    assert restore_whitespace(b"a\n", new, [b"```\n", b"```\n"]) == new


@pytest.mark.parametrize(
    ("old", "new", "made"),
    [
        (b"", b"a\n", b"a\n"),
        (b"a", b"b\n", b"b"),
        (b"a\n", b"b", b"b\n"),
        (b"a\r\nb\nc\r\n", b"a\nx\nb\nc\n", b"a\r\nx\r\nb\nc\r\n"),
        (b"a\rb", b"a\nb\nc\n", b"a\rb\rc"),
        (b"a\n", b"", b""),
        (b"a\r\nb", b"", b""),
    ],
)
def test_a_text_written_anew_gets_the_line_ends_of_the_old(old: bytes, new: bytes, made: bytes):
    assert restore_line_ends(old, new) == made


def test_changes_are_counted():
    assert count_changes(numbered(50_000), b"new\n" + numbered(49_999)) == (1, 1)
    same = b"same\n" * 10_000
    assert count_changes(same + b"old\n" + same, same + same) == (0, 1)
    assert count_changes(b"", b"") == (0, 0)
