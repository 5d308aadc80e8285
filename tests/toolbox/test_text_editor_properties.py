"""What holds for every text, with any mix of line ends."""

import re
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from editing import Call, as_one_caller
from treefold.core.errors import InvalidArgumentsError
from treefold.toolbox.editing.document import Document, read_document
from treefold.toolbox.editing.edits import insert_after, replace_once
from treefold.toolbox.editing.history import MAX_CHANGES, Change, History
from treefold.toolbox.editing.lines import (
    common_ends,
    count_lines,
    line_start,
    normalize_line_ends,
    original_offset,
)
from treefold.toolbox.editing.view import show_lines

ends = st.sampled_from(["\n", "\r\n", "\r"])
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), max_size=5)
few = st.sampled_from(["a", "b", "ab", ""])
texts = st.lists(st.one_of(ends, words, few), max_size=12).map("".join)


def lines_of(text: str) -> list[str]:
    """Split at line ends only, unlike ``str.splitlines``."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines[:-1] if lines[-1] == "" else lines


@given(texts)
def test_lines_are_counted_and_found(text: str):
    body = text.encode()
    lines = lines_of(text)
    assert count_lines(body) == len(lines)
    for number, line in enumerate(lines, 1):
        assert body[line_start(body, number) :].startswith(line.encode())


@given(texts)
def test_each_place_of_the_flat_text_is_found_in_the_real_one(text: str):
    body = text.encode()
    flat = normalize_line_ends(body)
    for offset in range(len(flat) + 1):
        assert normalize_line_ends(body[: original_offset(body, flat, offset)]) == flat[:offset]


@given(texts)
def test_view_shows_every_line_with_its_number(text: str):
    lines = lines_of(text)
    shown = show_lines(Document(text.encode()), 1, len(lines), 10_000)
    assert shown == "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1))


@given(texts, st.data())
def test_replacing_is_what_it_would_be_with_plain_line_ends(text: str, data: st.DataObject):
    body = text.encode()
    flat = normalize_line_ends(body).decode()
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(flat))] * 2)))
    old, new = flat[start:end], data.draw(texts)
    plain = normalize_line_ends(new.encode()).decode()
    if len(re.findall(f"(?={re.escape(old)})", flat)) != 1 or old in {"", plain}:
        return

    edited = replace_once(body, old.encode(), new.encode())

    assert normalize_line_ends(edited.body).decode() == flat.replace(old, plain)
    head, tail = flat.index(old), len(flat) - flat.index(old) - len(old)
    before = body[: original_offset(body, flat.encode(), len(flat[:head].encode()))]
    assert edited.body.startswith(before)
    assert not tail or normalize_line_ends(edited.body).decode().endswith(flat[-tail:])


@given(texts, texts, st.data())
def test_inserting_adds_lines_and_changes_no_other(text: str, added: str, data: st.DataObject):
    body = text.encode()
    old = lines_of(text)
    line = data.draw(st.integers(0, len(old)))

    edited = insert_after(body, line, added.encode())

    new = lines_of(edited.body.decode())
    fresh = lines_of(added) or [""] * bool(old)
    assert new == old[:line] + fresh + old[line:]
    assert (edited.first, edited.last) == (line + 1, line + len(fresh))
    if old and new[-1]:
        assert edited.body.endswith((b"\n", b"\r")) == text.endswith(("\n", "\r"))


@given(st.binary(max_size=60))
def test_whatever_is_taken_for_text_is_written_as_it_was_read(raw: bytes):
    try:
        document = read_document(raw, "file")
    except ValueError:
        return
    assert document.raw == raw


@given(texts, st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_every_encoding_is_recognised(text: str, encoding: str):
    document = read_document(text.encode(encoding), "file")
    assert document.body.decode().removeprefix("\ufeff") == text.removeprefix("\ufeff")


@given(st.binary(max_size=30), st.binary(max_size=30), st.binary(max_size=30))
def test_a_change_is_undone(same: bytes, old: bytes, new: bytes):
    before, after = same + old + same, same + new + same
    head, tail = common_ends(before, after)
    assert head + tail <= min(len(before), len(after))
    change = Change.between("path", before, after)
    assert change.is_result(after)
    assert change.revert(after) == before


@given(st.integers(0, 200_000), st.integers(0, 200_000))
@settings(max_examples=30)
def test_the_difference_of_long_texts_is_found(head: int, tail: int):
    assert common_ends(b"x" * head + b"a" + b"y" * tail, b"x" * head + b"b" + b"y" * tail) == (
        head,
        tail,
    )


def test_a_history_forgets_the_oldest_and_what_is_too_large():
    history = History(max_bytes=100)
    assert history.add(Change.between("a", b"x" * 60, b""))
    assert history.add(Change.between("b", b"x" * 60, b""))
    assert history.last("a") is None
    assert history.last("b")
    assert not history.add(Change.between("b", b"x" * 101, b""))
    assert history.last("b") is None
    for number in range(MAX_CHANGES + 1):
        history.add(Change.between(str(number), b"", b"new"))
    assert history.last("0") is None
    assert history.last("1")


@given(text=texts, old=texts, new=texts, line=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_edits_that_are_undone_leave_the_same_bytes(text: str, old: str, new: str, line: int):
    edits: list[dict[str, Any]] = [
        {"command": "str_replace", "old_str": old, "new_str": new},
        {"command": "insert", "insert_line": line, "insert_text": new},
        {"command": "create", "file_text": old},
    ]

    def work(do: Call) -> None:
        done = 0
        for args in edits:
            try:
                do(**args)
            except InvalidArgumentsError:
                continue  # it does not fit this text
            done += 1
        for _ in range(done):
            do("undo_edit")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(text.encode())
        as_one_caller(path, work)
        assert path.read_bytes() == text.encode()
