"""What is taken for a patch, and for which file."""

import pytest

from patching import hunks_in, text
from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox.patching.file_diff import parse_patch, select_file_diff
from treefold.toolbox.patching.hunk import Hunk, PatchLine

PLAIN = text("""
    --- a/poem.txt
    +++ b/poem.txt
    @@ -1,3 +1,3 @@ stanza
     one
    -two
    +TWO
     three
    """)
CHANGE = (
    PatchLine(" ", b"one\n"),
    PatchLine("-", b"two\n"),
    PatchLine("+", b"TWO\n"),
    PatchLine(" ", b"three\n"),
)


def lines_in(patch: str) -> list[tuple[PatchLine, ...]]:
    return [hunk.lines for hunk in hunks_in(patch)]


def test_a_hunk_has_a_number_a_header_a_place_and_lines():
    [file_diff] = parse_patch(PLAIN.encode())
    assert (file_diff.old, file_diff.new, file_diff.name) == (
        "a/poem.txt",
        "b/poem.txt",
        "poem.txt",
    )
    assert file_diff.hunks == (
        Hunk(
            number=1,
            header="@@ -1,3 +1,3 @@ stanza",
            stated_start=0,
            lines=CHANGE,
            is_well_formed=True,
        ),
    )


@pytest.mark.parametrize(
    "patch",
    [
        f"Here is the patch:\n\n```diff\n{PLAIN}```\n\n- It shouts.\n",
        f"~~~~\n{PLAIN}~~~~\n```\nother code\n```\n",
        f"```diff\n{PLAIN}",
        f"From: me\nSubject: x\n---\n poem.txt | 2 +-\n\n{PLAIN}-- \n2.39.5\n\n",
        f"diff --git a/poem.txt b/poem.txt\nindex 12..34 100644\n{PLAIN}",
        f"Index: poem.txt\n========\n{PLAIN}",
        f"{PLAIN}\nThis is what it does:\n- it shouts\n",
        f"{PLAIN}Hope this helps!\n",
        PLAIN.removesuffix("\n"),
        PLAIN.split("\n", 2)[2],
        PLAIN.replace("--- a/poem.txt", "--- poem.txt\t2026-01-01 00:00:00"),
    ],
    ids=lambda patch: patch[:20],
)
def test_what_is_around_a_patch_does_not_matter(patch: str):
    assert lines_in(patch) == [CHANGE]


@pytest.mark.parametrize(
    "header",
    ["@@ -1,9 +1,9 @@", "@@ -1 +1 @@", "@@ -1,2 +1,3 @@", "@@ -7,0 +7,1 @@", "@@", "@@ stanza @@"],
)
@pytest.mark.parametrize("after", ["", "\n", "\n\n", "\nThat is all.\n", "@@ -9 +9 @@\n-x\n"])
def test_wrong_counts_do_not_matter(header: str, after: str):
    found = hunks_in(PLAIN.replace("@@ -1,3 +1,3 @@ stanza", header) + after)
    assert found[0].lines == CHANGE
    assert found[0].is_well_formed
    assert len(found) == 1 + after.startswith("@@")


def test_blank_lines_may_have_lost_their_space():
    patch = "@@ -1,4 +1,4 @@\n\n-a\n+b\n\n c\n"
    assert lines_in(patch) == lines_in("@@ -1,4 +1,4 @@\n \n-a\n+b\n \n c\n")


def test_lines_that_look_like_names_are_lines_where_no_hunk_follows():
    patch = "--- a\n+++ b\n@@ -1,2 +1,2 @@\n a\n--- x\n+++ y\n"
    [hunk] = hunks_in(patch)
    assert (hunk.removed, hunk.added) == ([b"-- x\n"], [b"++ y\n"])


def test_two_blocks_for_one_file_are_one_patch():
    again = PLAIN.replace("-1,3 +1,3", "-5,3 +5,3")
    [file_diff] = parse_patch(f"```diff\n{PLAIN}```\nand\n```diff\n{again}```\n".encode())
    assert [hunk.stated_start for hunk in file_diff.hunks] == [0, 4]


def test_a_remark_takes_the_line_end_away_on_the_side_that_it_stands():
    remark = "\\ No newline at end of file\n"
    [hunk] = hunks_in(f"@@ -1 +1 @@\n-a\n{remark}+a\n")
    assert (hunk.old, hunk.new) == ([b"a"], [b"a\n"])
    [hunk] = hunks_in(f"@@ -1,2 +1,2 @@\n-b\n+c\n a\n{remark}")
    assert (hunk.old, hunk.new) == ([b"b\n", b"a"], [b"c\n", b"a"])


def test_a_patch_with_windows_line_ends_is_read():
    [file_diff] = parse_patch(PLAIN.replace("\n", "\r\n").encode())
    assert file_diff.name == "poem.txt"
    assert [line.text for line in file_diff.hunks[0].lines] == [
        line.text.replace(b"\n", b"\r\n") for line in CHANGE
    ]


def test_a_hunk_with_unmarked_lines_is_kept_together_and_not_taken_for_whole():
    [hunk] = hunks_in("@@ -1,4 +1,4 @@\n one\n-two\n+TWO\nthree\n-four\n+FOUR\n")
    assert not hunk.is_well_formed
    assert (hunk.removed, hunk.added) == ([b"two\n", b"four\n"], [b"TWO\n", b"FOUR\n"])


@pytest.mark.parametrize(
    ("header", "at"),
    [
        ("@@ -5,0 +6 @@", 5),
        ("@@ -0,0 +1 @@", 0),
        ("@@ -5,2 +6 @@", None),  # it says that there are lines, and has none
        ("@@ -5 +6 @@", None),
        ("@@", None),
    ],
)
def test_where_an_insertion_goes_is_known_only_if_the_header_says_that_it_is_one(
    header: str, at: int | None
):
    [hunk] = hunks_in(f"{header}\n+new\n")
    assert hunk.stated_start == at


TWO_FILES = PLAIN + PLAIN.replace("poem.txt", "lib/song.txt")


def test_a_patch_of_one_file_is_for_any_file():
    assert select_file_diff("/elsewhere/x.py", parse_patch(PLAIN.encode())).name == "poem.txt"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/project/poem.txt", "poem.txt"),
        ("/project/lib/song.txt", "lib/song.txt"),
        ("/other/song.txt", "lib/song.txt"),
    ],
)
def test_of_a_patch_of_several_files_the_part_with_the_name_is_used(path: str, name: str):
    assert select_file_diff(path, parse_patch(TWO_FILES.encode())).name == name


def test_the_name_that_has_more_of_the_path_is_the_one():
    patch = PLAIN.replace("poem", "lib/poem") + PLAIN.replace("poem", "test/poem")
    assert (
        select_file_diff("/project/test/poem.txt", parse_patch(patch.encode())).name
        == "test/poem.txt"
    )


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        (TWO_FILES, "2 files ('poem.txt', 'lib/song.txt'), and none of them has the name '/w/x'"),
        (
            PLAIN.replace("poem.txt", "a/x") + PLAIN.replace("poem.txt", "b/x"),
            "and more than one of them has the name '/w/x'; give only the part",
        ),
        ("nothing of the kind", "there is no hunk in the patch; give a unified diff"),
        ("Binary files a/x and b/x differ\n", "there is no hunk"),
        ("@@@ -1 -1 +1 @@@\n--x\n", "there is no hunk"),
        ("@@ -1,2 +1,2 @@\n a\n b\n", "adds and removes nothing"),
        ("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "the patch deletes '/w/x', and this"),
    ],
)
def test_a_patch_that_cannot_be_for_the_file_is_refused_in_words(patch: str, told: str):
    with pytest.raises(InvalidArgumentsError) as caught:
        select_file_diff("/w/x", parse_patch(patch.encode()))
    assert told in str(caught.value)


def test_hunks_that_change_nothing_are_left_out_and_the_others_numbered():
    patch = "@@ -1 +1 @@\n a\n@@ -2 +2 @@\n-b\n+c\n"
    [hunk] = select_file_diff("x", parse_patch(patch.encode())).hunks
    assert (hunk.number, hunk.stated_start) == (1, 1)
