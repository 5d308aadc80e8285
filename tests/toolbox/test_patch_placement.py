"""Where hunks go, and what is made of them there."""

import pytest

from patching import hunks_in, numbered
from treefold.toolbox.patching.hunk import split_rows
from treefold.toolbox.patching.plan import Plan, make_plan


def plan_of(body: bytes, patch: str) -> Plan:
    return make_plan(body, hunks_in(patch))


def after(body: bytes, patch: str) -> bytes:
    """Return *body* with the hunks of *patch*, none of which is rejected."""
    plan = plan_of(body, patch)
    assert not plan.rejected
    rows = split_rows(plan.before)
    for place in reversed(plan.placed):
        assert rows[place.start : place.end] == place.hunk.old
        rows[place.start : place.end] = place.hunk.new
    return plan.finish(b"".join(rows))


def reasons(body: bytes, patch: str) -> list[tuple[int, str]]:
    return [(rejected.hunk.number, rejected.reason) for rejected in plan_of(body, patch).rejected]


def starts(body: bytes, patch: str) -> list[int]:
    return [place.start for place in plan_of(body, patch).placed]


def test_a_hunk_goes_where_it_says():
    assert starts(b"a\nb\n" * 3, "@@ -3,2 +3,2 @@\n a\n-b\n+c\n") == [2]


def test_a_hunk_that_says_the_wrong_line_goes_where_its_lines_are():
    assert starts(numbered(50), "@@ -3,2 +3,2 @@\n line 40\n-line 41\n+x\n") == [39]


def test_a_hunk_does_not_choose_between_two_places():
    body = b"a\nb\nx\na\nb\n"
    patch = "@@ -2,2 +2,2 @@\n a\n-b\n+c\n"
    assert reasons(body, patch) == [(1, "it matches in several places")]


def test_a_hunk_follows_those_before_it_rather_than_its_number():
    body = b"new\nnew\none\ntwo\nsame\nsame\nthree\nsame\nsame\nsame\n"
    patch = "@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n@@ -6 +6 @@\n-same\n+SAME\n"
    assert after(body, patch) == b"new\nnew\none\nTWO\nsame\nsame\nthree\nSAME\nsame\nsame\n"


@pytest.mark.parametrize(
    ("body", "patch"),
    [
        (b"a\n", "@@ -1 +1 @@\n-b\n+c\n"),
        (b"", "@@ -1 +1 @@\n-b\n+c\n"),
        (b"    a\n    b\n", "@@ -1,2 +1,2 @@\n   a\n-  b\n+  c\n"),  # not in line with the rest
        (b"ab\n", "@@ -1 +1 @@\n-a b\n+c\n"),
        (b"1\n2\nX\n4\n5\n", "@@ -1,5 +1,5 @@\n 1\n 2\n-3\n+Y\n 4\n 5\n"),
    ],
)
def test_a_hunk_whose_lines_are_not_there_is_rejected(body: bytes, patch: str):
    assert reasons(body, patch) == [(1, "the lines that it expects are not in the file")]


def test_a_hunk_with_unmarked_lines_is_rejected():
    patch = "@@ -2,5 +2,5 @@\n-b\nc\n+d\n"
    assert reasons(b"a\nb\nc\n", patch) == [
        (1, "it has lines that begin with neither '+' nor '-' nor a space")
    ]


def test_a_hunk_without_numbers_goes_where_its_lines_are_if_there_is_no_choice():
    assert starts(numbered(50), "@@\n line 40\n-line 41\n+x\n") == [39]
    assert starts(b"a\r\n b  c \r\n", "@@ def f():\n  b c\n+x\n") == [1]
    patch = "@@\n-b\n+c\n"
    assert reasons(b"b\nb\n", patch) == [(1, "it matches in several places")]
    assert reasons(b"a\n", patch) == [(1, "the lines that it expects are not in the file")]
    assert reasons(b"a\n", "@@\n+c\n") == [
        (1, "its header has no line number, and it has no lines to find")
    ]


def test_a_hunk_without_numbers_has_no_say_in_where_the_next_one_goes():
    body = b"a\n" * 2 + b"x\n" + b"a\n" * 2
    assert starts(body, "@@\n-x\n+y\n@@ -5 +5 @@\n-a\n+b\n") == [2, 4]


def test_two_hunks_that_change_the_same_line_are_not_both_applied():
    patch = "@@ -1 +1 @@\n-a\n+b\n@@ -1 +1 @@\n-a\n+c\n"
    plan = plan_of(b"a\n", patch)
    assert [place.hunk.number for place in plan.placed] == [1]
    assert reasons(b"a\n", patch) == [(2, "it changes the same lines as hunk 1")]
    patch = "@@ -1 +1,2 @@\n a\n+b\n" * 2
    assert reasons(b"a\n", patch) == [(2, "it changes the same lines as hunk 1")]


def test_hunks_that_share_context_are_both_applied():
    patch = "@@ -1,3 +1,3 @@\n-a\n+A\n b\n c\n@@ -1,3 +1,3 @@\n a\n b\n-c\n+C\n"
    assert after(b"a\nb\nc\n", patch) == b"A\nb\nC\n"


def test_hunks_may_come_in_any_order():
    patch = "@@ -3 +3 @@\n-c\n+C\n@@ -1 +1 @@\n-a\n+A\n"
    assert after(b"a\nb\nc\n", patch) == b"A\nb\nC\n"


def test_white_space_inside_of_lines_and_at_their_ends_may_differ():
    body = b"if  (a)\t{\n  b();  \n\n}\n"
    patch = "@@ -1,4 +1,5 @@\n if (a) {\n   b();\n+  c();\n   \n }\n"
    assert after(body, patch) == b"if  (a)\t{\n  b();  \n  c();\n\n}\n"


def test_context_that_differs_may_be_left_out_to_a_line_where_there_is_no_choice():
    body = b"1\n2\n3\n4\n5\n6\n"
    patch = "@@ -1,6 +1,7 @@\n X\n 2\n 3\n+new\n 4\n Y\n Z\n"
    assert after(body, patch) == b"1\n2\n3\nnew\n4\n5\n6\n"
    assert reasons(body * 2, patch) == [(1, "it matches in several places")]
    patch = "@@ -1,2 +1,3 @@\n X\n+new\n 4\n"
    assert reasons(body, patch) == [(1, "the lines that it expects are not in the file")]


@pytest.mark.parametrize(
    ("body", "patch", "result"),
    [
        # nothing said about the end of the file: it stays as it is
        (b"a\nb", "@@ -1,2 +1,3 @@\n a\n b\n+c\n", b"a\nb\nc"),
        (b"a\r\nb", "@@ -1,2 +1,3 @@\n a\n b\n+c\n", b"a\r\nb\r\nc"),
        (b"a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", b"a\nc"),
        (b"a\nb", "@@ -1,2 +1,2 @@\n-a\n+c\n b\n", b"c\nb"),
        (b"a\nb\n", "@@ -1,2 +1,2 @@\n-a\n+c\n b\n\\ No newline\n", b"c\nb\n"),
        # it is to be changed
        (b"a\r\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline\n+b\n", b"a\r\nb\r\n"),
        (b"a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline\n", b"a\r\nb"),
        (b"", "@@ -0,0 +1 @@\n+a\n\\ No newline\n", b"a"),
        (b"", "@@ -0,0 +1 @@\n+a\n", b"a\n"),
        (b"a\n", "@@ -1 +0,0 @@\n-a\n", b""),
        # line ends: as they are, or as the patch says if it says that exactly
        (b"a\r\nb\nc\r\n", "@@ -1,3 +1,4 @@\n a\n+x\n b\n+y\n c\n", b"a\r\nx\r\nb\ny\nc\r\n"),
        (b"a\r\nb\r\n", "@@ -1,2 +1,2 @@\n-a\r\n+a\n b\r\n", b"a\nb\r\n"),
        (b"a\nb\n", "@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+c\r\n", b"a\nc\n"),
        (b"a\rb\r", "@@ -1,2 +1,3 @@\n a\n+x\n b\n", b"a\rx\rb\r"),
        (b"a\nb\rc\n", "@@ -1,2 +1,2 @@\n a\n-b\rc\n+d\n", b"a\nd\n"),
        (b"a\r\nb\r\n", "@@ -1,0 +2 @@\n+x\n", b"a\r\nx\r\nb\r\n"),
    ],
)
def test_ends_of_lines_and_of_the_file_are_kept_unless_the_patch_changes_them(
    body: bytes, patch: str, result: bytes
):
    assert after(body, patch) == result


def test_an_insertion_without_context_goes_by_its_number():
    assert after(b"a\nb\n", "@@ -1,0 +2 @@\n+x\n") == b"a\nx\nb\n"
    assert after(b"a\nb\n", "@@ -2,0 +3 @@\n+x\n") == b"a\nb\nx\n"
    assert reasons(b"a\nb\n", "@@ -7,0 +8 @@\n+x\n") == [
        (1, "it adds lines after line 7, but the file has only 2")
    ]


def test_an_empty_file_takes_what_is_added_even_without_numbers():
    assert after(b"", "@@\n+a\n") == b"a\n"


def test_a_thousand_hunks_in_a_hundred_thousand_lines_are_placed_by_their_lines():
    body = numbered(100_000)
    patch = "".join(
        f"@@ -1,2 +1,2 @@\n line {number}\n-line {number + 1}\n+x\n"
        for number in range(50, 100_000, 100)
    )
    assert starts(body, patch) == list(range(49, 100_000, 100))
