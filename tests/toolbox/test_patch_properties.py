"""What holds for every text and every patch of it."""

import asyncio
import difflib
import re
import tempfile
from pathlib import Path

from hypothesis import assume, given, settings, strategies as st

from treefold import Runtime
from treefold.toolbox import ApplyDiffPatch
from treefold.toolbox.patching.file_diff import parse_patch
from treefold.toolbox.patching.git import apply_with_git
from treefold.toolbox.patching.hunk import Hunk, split_rows
from treefold.toolbox.patching.plan import Plan, make_plan
from treefold.toolbox.patching.rewriting import count_changes, restore_line_ends

few = st.sampled_from([
    "a",
    "b",
    "c",
    "",
    "  a",
    "-- x",
    "++ y",
    "@@",
    "\\ z",
    "```",
    "diff --git a",
])
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n"), max_size=4)
lines = st.lists(st.one_of(few, few, few, words), max_size=14)
ends = st.sampled_from(["\n", "\r\n"])
last_ends = st.sampled_from(["\n", ""])


@st.composite
def edits(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Lines, and an edited version of them."""
    old = draw(lines)
    new = list(old)
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(new))] * 2)))
        new[start:end] = draw(st.lists(few, max_size=3))
    return old, new


def unified(old: bytes, new: bytes, context: int) -> bytes:
    """Return the diff of the two, with remarks about missing ends."""
    rows = difflib.diff_bytes(
        difflib.unified_diff, split_rows(old), split_rows(new), b"a/f", b"b/f", n=context
    )
    return b"".join(
        row if row.endswith(b"\n") else row + b"\n\\ No newline at end of file\n" for row in rows
    )


def hunks_of(patch: bytes) -> list[Hunk]:
    return [hunk for file_diff in parse_patch(patch) for hunk in file_diff.hunks]


def spliced(plan: Plan) -> bytes:
    """Apply the placed hunks of *plan* without git."""
    rows = split_rows(plan.before)
    for place in reversed(plan.placed):
        assert rows[place.start : place.end] == place.hunk.old
        rows[place.start : place.end] = place.hunk.new
    return b"".join(rows)


def by_git(plan: Plan) -> bytes:
    if not plan.placed:
        return plan.finish(plan.before)
    run = asyncio.run(apply_with_git(plan.before, plan.patch))
    assert run.after is not None, run.error
    return plan.finish(run.after)


@given(edits(), st.lists(ends, min_size=40, max_size=40), last_ends, st.integers(1, 4))
@settings(max_examples=75, deadline=None)
def test_git_makes_exactly_the_text_that_a_diff_was_made_of(
    edit: tuple[list[str], list[str]], with_ends: list[str], last_end: str, context: int
):
    old, new = (
        "".join(line + end for line, end in zip(side, with_ends, strict=False)).encode()
        for side in edit
    )
    new = new.removesuffix(b"\n") + last_end.encode() * new.endswith(b"\n")
    assume(old != new)

    plan = make_plan(old, hunks_of(unified(old, new, context)))

    assert not plan.rejected
    assert plan.before == old
    assert by_git(plan) == new


@given(edits(), st.sampled_from(["\n", "\r\n", "\r"]), st.integers(0, 3))
@settings(max_examples=75, deadline=None)
def test_a_patch_with_plain_line_ends_keeps_those_of_the_file(
    edit: tuple[list[str], list[str]], end: str, context: int
):
    sides = [[line.replace("\r", "") for line in side] for side in edit]
    old, new = ("".join(line + end for line in side).encode() for side in sides)
    plain = [side.replace(end.encode(), b"\n") for side in (old, new)]
    assume(old and old != new)

    plan = make_plan(old, hunks_of(unified(plain[0], plain[1], context)))

    assert not plan.rejected
    assert by_git(plan) == new


@given(lines, edits(), last_ends, st.integers(0, 3))
@settings(max_examples=75, deadline=None)
def test_git_applies_whatever_has_a_place_in_whatever_text(
    text: list[str], edit: tuple[list[str], list[str]], last_end: str, context: int
):
    body = ("\n".join(text) + last_end).encode()
    old, new = ("\n".join(side).encode() for side in edit)
    plan = make_plan(body, hunks_of(unified(old, new, context)))
    assert plan.finish(spliced(plan)) == by_git(plan) == plan.apply()


pieces = st.sampled_from([
    *("@@ -1,2 +1,2 @@\n", "@@ -0,0 +1 @@\n", "@@ -9,9 +9 @@ f()\n", "@@\n", "\\ No newline\n"),
    *("--- a/x\n", "+++ b/x\n", "diff --git a/y b/y\n", "-- \n2.3\n", "```diff\n", "```\n"),
    *("+a\n", "-a\n", " a\n", "+", " ", "\r", "\n", "a\n", "+b\r\n", "-b\n", " c\n"),
])


@given(st.lists(pieces, max_size=20).map("".join), lines)
@settings(max_examples=75, deadline=None)
def test_whatever_looks_like_a_patch_is_read_and_what_has_a_place_is_applied(
    text: str, file: list[str]
):
    hunks = hunks_of(text.encode())
    assert all(line.text.strip() in text.encode() for hunk in hunks for line in hunk.lines)
    plan = make_plan("\n".join(file).encode(), [hunk for hunk in hunks if hunk.affected_lines])
    assert plan.finish(spliced(plan)) == by_git(plan)


@given(edits(), st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]))
@settings(max_examples=40, deadline=None)
def test_the_encoding_of_the_file_is_kept(edit: tuple[list[str], list[str]], encoding: str):
    sides = [
        ["é", *(re.sub(r"[\0-\x1f\x7f]|[^\0-\xff]", "", line) for line in side)] for side in edit
    ]
    texts = ["".join(f"{line}\n" for line in side) for side in sides]
    assume(texts[0] != texts[1])
    patch = unified(texts[0].encode(), texts[1].encode(), 3)
    with tempfile.TemporaryDirectory() as folder, Runtime() as runtime:
        path = Path(folder) / "file"
        path.write_bytes(texts[0].encode(encoding))
        (Path(folder) / "patch").write_bytes(patch)
        args = {"file": "file", "patch": "patch"}
        runtime.invoke(ApplyDiffPatch(root=folder), args).result(60)
        assert path.read_bytes() == texts[1].encode(encoding)


@given(edits(), st.sampled_from(["\n", "\r\n", "\r"]))
def test_a_text_that_was_written_anew_has_the_line_ends_that_it_had(
    edit: tuple[list[str], list[str]], end: str
):
    sides = [[line.replace("\r", "") for line in side] for side in edit]
    old, new = ("".join(line + end for line in side).encode() for side in sides)
    plain = new.replace(end.encode(), b"\n")
    assume(old)
    assert restore_line_ends(old, plain) == new
    added, removed = count_changes(old, new)
    assert len(sides[1]) - len(sides[0]) == added - removed or end == "\r"
