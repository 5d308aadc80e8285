"""What a model sees when it views and edits files."""

from pathlib import Path
from typing import Any

import pytest

from editing import Call, as_one_caller, call, edit
from treefold import CodeFunction, RunContext, Runtime
from treefold.core.errors import CallError, InvalidArgumentsError, InvalidValueError
from treefold.models import AnthropicModel
from treefold.testing import ScriptedModel
from treefold.toolbox import FileError, TextEditor, text_editor


@pytest.fixture
def poem(tmp_path: Path) -> Path:
    path = tmp_path / "poem.txt"
    path.write_bytes(b"one\ntwo\nthree\nfour\n")
    return path


def test_view_shows_each_line_with_its_number_and_a_tab(poem: Path):
    shown = edit("view", poem)
    assert shown == "     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour"


@pytest.mark.parametrize(
    ("view_range", "numbers"), [([2, 3], [2, 3]), ([3, -1], [3, 4]), ([1, 1], [1]), ([4, 4], [4])]
)
def test_view_shows_a_range_of_lines(poem: Path, view_range: list[int], numbers: list[int]):
    shown = edit("view", poem, view_range=view_range)
    assert [int(row.split("\t")[0]) for row in shown.split("\n")] == numbers


@pytest.mark.parametrize("view_range", [[0, 2], [3, 2], [5, -1], [1, 5], [-2, -1], [1], [1, 2, 3]])
def test_a_range_that_is_not_in_the_file_is_refused_with_the_number_of_lines(
    poem: Path, view_range: list[int]
):
    with pytest.raises(InvalidArgumentsError, match="4 lines|two numbers"):
        edit("view", poem, view_range=view_range)


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path):
    (tmp_path / "nothing").touch()
    assert edit("view", tmp_path / "nothing") == f"{tmp_path}/nothing is empty."


def test_a_long_file_is_cut_at_a_line_and_says_how_to_see_the_rest(tmp_path: Path):
    path = tmp_path / "long.txt"
    path.write_text("".join(f"line {number}\n" for number in range(1, 1001)))

    shown = call(TextEditor(max_chars=100), "view", path)

    *rows, notice = shown.split("\n")
    assert len("\n".join(rows)) <= 100
    following = len(rows) + 1
    assert notice == (
        f"[lines {following} to 1000 are not shown; to see more, view with view_range"
        f" [{following}, 1000]]"
    )
    shown = call(TextEditor(max_chars=100), "view", path, view_range=[following, 1000])
    assert shown.startswith(f"{following:6}\tline {following}\n")


def test_a_long_line_is_cut(tmp_path: Path):
    path = tmp_path / "long.txt"
    path.write_text("é" * 1000 + "\nnext\n")
    shown = call(TextEditor(max_chars=20), "view", path)
    assert shown == (
        "     1\tééééééééééééé\n[line 1 has 2,000 bytes and was cut off here]\n"
        "[line 2 is not shown; to see more, view with view_range [2, 2]]"
    )


def test_view_of_a_folder_lists_two_levels_without_hidden_names(tmp_path: Path):
    (tmp_path / "src" / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "file").touch()
    (tmp_path / "src" / "a.py").touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / "link").symlink_to("src")

    shown = call(TextEditor(tmp_path), "view", ".")

    assert shown == (
        ". has, up to 2 levels deep and without hidden names:\nlink@\nsrc/\nsrc/a.py\nsrc/deep/"
    )
    assert call(TextEditor(tmp_path), "view", ".", view_range=[]) == shown
    with pytest.raises(InvalidArgumentsError, match="is a folder, and view_range is for files"):
        edit("view", tmp_path, view_range=[1, 2])


def test_a_large_folder_is_cut(tmp_path: Path):
    for number in range(100):
        (tmp_path / f"file{number:03}").touch()
    shown = call(TextEditor(tmp_path, max_chars=80), "view", ".")
    assert shown.endswith("file009\n[90 more are not shown; to see more, view the folders in it]")


def test_create_makes_the_folders_and_says_whether_it_replaced(tmp_path: Path):
    path = tmp_path / "a" / "b" / "new.txt"

    assert edit("create", path, file_text="one\ntwo") == f"Created {path} with 2 lines."
    assert path.read_bytes() == b"one\ntwo"
    assert edit("create", path, file_text="") == (f"Replaced all that was in {path} with 0 lines.")
    assert path.read_bytes() == b""
    assert [child.name for child in path.parent.iterdir()] == ["new.txt"]


def test_str_replace_shows_the_lines_around_the_change(tmp_path: Path):
    path = tmp_path / "numbers"
    path.write_text("".join(f"{number}\n" for number in range(1, 21)))

    shown = edit("str_replace", path, old_str="10\n", new_str="ten\nten and a half\n")

    rows = [(6, "6"), (7, "7"), (8, "8"), (9, "9"), (10, "ten"), (11, "ten and a half")]
    rows += [(12, "11"), (13, "12"), (14, "13"), (15, "14")]
    assert shown == f"Edited {path}. Lines 6 to 15 of 21 are now:\n" + "\n".join(
        f"{number:6}\t{text}" for number, text in rows
    )


def test_str_replace_without_new_str_deletes(poem: Path):
    edit("str_replace", poem, old_str="two\n")
    assert poem.read_bytes() == b"one\nthree\nfour\n"
    assert (edit("str_replace", poem, old_str="one\nthree\nfour\n")).endswith("empty now.")
    assert poem.read_bytes() == b""


def test_str_replace_of_what_is_there_several_times_says_where(tmp_path: Path):
    path = tmp_path / "same"
    path.write_text("x = 1\ny = 1\nx = 1\naaa\n")

    with pytest.raises(InvalidArgumentsError, match="in the file 2 times, at lines 1, 3; add"):
        edit("str_replace", path, old_str="x = 1", new_str="x = 2")
    with pytest.raises(InvalidArgumentsError, match="2 times, at lines 4, 4"):  # they overlap
        edit("str_replace", path, old_str="aa", new_str="b")
    path.write_text("a\n" * 5000)
    with pytest.raises(InvalidArgumentsError, match="more than 1000 times, .* 19, 20, …;"):
        edit("str_replace", path, old_str="a", new_str="b")


@pytest.mark.parametrize(
    ("old", "told"),
    [
        ("five", "old_str is not in the file; it must match exactly"),
        ("  two\n\tthree", "something that differs in white space only is at line 2"),
        ("     2\ttwo\n     3\tthree", "leave out the line numbers and tabs"),
        ("", "old_str is empty; use 'insert'"),
        ("one", "old_str and new_str are the same"),
    ],
)
def test_str_replace_that_does_not_fit_says_why(poem: Path, old: str, told: str):
    with pytest.raises(InvalidArgumentsError, match=told):
        edit("str_replace", poem, old_str=old, new_str="one")
    assert poem.read_bytes() == b"one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize(
    ("line", "text", "result"),
    [
        (0, "zero", b"zero\none\ntwo\nthree\nfour\n"),
        (0, "zero\n", b"zero\none\ntwo\nthree\nfour\n"),
        (2, "a\nb\n\n", b"one\ntwo\na\nb\n\nthree\nfour\n"),
        (4, "five", b"one\ntwo\nthree\nfour\nfive\n"),
        (1, "", b"one\n\ntwo\nthree\nfour\n"),
    ],
)
def test_insert_adds_lines_after_a_line(poem: Path, line: int, text: str, result: bytes):
    edit("insert", poem, insert_line=line, insert_text=text)
    assert poem.read_bytes() == result


def test_insert_takes_the_older_name_of_its_text_and_shows_the_result(poem: Path):
    shown = edit("insert", poem, insert_line=4, new_str="five")
    assert shown.split("\n")[-1] == "     5\tfive"


@pytest.mark.parametrize("line", [-1, 5])
def test_insert_after_a_line_that_is_not_there_is_refused(poem: Path, line: int):
    with pytest.raises(InvalidArgumentsError, match=f"from 0, the top, to 4, .* got {line}"):
        edit("insert", poem, insert_line=line, insert_text="x")


def test_insert_keeps_a_missing_line_end_at_the_end(tmp_path: Path):
    path = tmp_path / "bare"
    path.write_bytes(b"one\r\ntwo")
    shown = edit("insert", path, insert_line=2, insert_text="three\nfour\n")
    assert path.read_bytes() == b"one\r\ntwo\r\nthree\r\nfour"
    assert shown.startswith(f"Edited {path}. Lines 1 to 4 of 4 are now:\n")


@pytest.mark.parametrize(
    ("command", "missing"),
    [("create", "file_text"), ("str_replace", "old_str"), ("insert", "insert_line")],
)
def test_a_command_names_the_argument_that_it_lacks(poem: Path, command: str, missing: str):
    with pytest.raises(InvalidArgumentsError, match=f"{command} needs the argument '{missing}'"):
        edit(command, poem, file_text=None)


def test_a_file_that_is_not_there_is_answered_with_the_nearest_names(poem: Path):
    with pytest.raises(FileError, match="no file is called 'peom.txt' in .* are 'poem.txt'"):
        edit("view", poem.with_name("peom.txt"))
    with pytest.raises(FileError, match="no folder is called 'dcos' in .* among others, 'poem.tx"):
        edit("str_replace", poem.parent / "dcos" / "poem.txt", old_str="a")


def test_errors_are_errors_of_the_call_and_value_errors():
    assert issubclass(FileError, CallError)
    assert issubclass(FileError, ValueError)


@pytest.mark.parametrize("made", [{"root": "/nowhere/at/all"}, {"max_chars": 0}])
def test_an_editor_that_could_do_nothing_is_not_made(made: dict[str, Any]):
    with pytest.raises(InvalidValueError):
        TextEditor(**made)


def test_claude_gets_its_trained_tool_and_others_a_description_and_a_schema(tmp_path: Path):
    assert text_editor.trained_as == "text_editor"
    assert text_editor.name == "text_editor"
    assert str(tmp_path) in TextEditor(tmp_path).description
    properties = text_editor.input_schema["properties"]
    assert all(inner["description"] for inner in properties.values())
    for name in properties.keys() - {"command", "path"}:
        assert {"type": "null"} in properties[name]["anyOf"]
    for command in properties["command"]["enum"]:
        assert f"- {command}: " in text_editor.description
    assert AnthropicModel("claude-opus-4-1").profile.trained_tools["text_editor"]
    ScriptedModel("fine").open("You edit.", [text_editor])


def test_undo_goes_back_edit_by_edit_and_removes_what_was_created(tmp_path: Path):
    path = tmp_path / "new.txt"

    def work(do: Call) -> None:
        do("create", file_text="one\n")
        do("insert", insert_line=1, insert_text="two")
        do("str_replace", old_str="one", new_str="1")
        assert path.read_text() == "1\ntwo\n"
        assert do("undo_edit") == f"Undid the last edit of {path}."
        assert path.read_text() == "one\ntwo\n"
        do("create", file_text="other")
        do("undo_edit")
        do("undo_edit")
        assert path.read_text() == "one\n"
        assert do("undo_edit") == f"Removed {path}, which your last edit had created."
        assert not path.exists()
        do("undo_edit")

    with pytest.raises(FileError, match="you have made no edit of .* that can be undone"):
        as_one_caller(path, work)


def test_undo_is_refused_when_the_file_has_changed_since(poem: Path):
    def work(do: Call) -> None:
        do("str_replace", old_str="one", new_str="1")
        poem.write_text("mine\n")
        do("undo_edit")

    with pytest.raises(FileError, match="changed by another writer after your last edit"):
        as_one_caller(poem, work)
    assert poem.read_text() == "mine\n"


def test_a_caller_cannot_undo_what_another_did(poem: Path):
    def write(ctx: RunContext) -> None:
        args = {"command": "create", "path": str(poem), "file_text": "new"}
        ctx.invoke(text_editor, args).result(60)

    def undo(ctx: RunContext) -> None:
        ctx.invoke(text_editor, {"command": "undo_edit", "path": str(poem)}).result(60)

    writer = CodeFunction(callable=write, uses=[text_editor])
    undoer = CodeFunction(callable=undo, uses=[text_editor])

    def both(ctx: RunContext) -> None:
        ctx.invoke(writer).result(60)
        ctx.invoke(undoer).result(60)

    with Runtime() as runtime, pytest.raises(FileError, match="no edit of"):
        runtime.invoke(CodeFunction(callable=both, uses=[writer, undoer])).result(60)
    assert poem.read_text() == "new"


def test_edits_made_in_parallel_are_all_there_and_can_all_be_undone(tmp_path: Path):
    path = tmp_path / "many"
    before = "".join(f"<{number}>\n" for number in range(50))
    path.write_text(before)

    def caller(ctx: RunContext) -> None:
        base = {"command": "str_replace", "path": str(path)}
        calls = [
            ctx.invoke(text_editor, base | {"old_str": f"<{number}>", "new_str": f"[{number}]"})
            for number in range(50)
        ]
        for made in calls:
            made.result(60)
        assert path.read_text() == "".join(f"[{number}]\n" for number in range(50))
        for _ in range(50):
            ctx.invoke(text_editor, base | {"command": "undo_edit"}).result(60)

    with Runtime() as runtime:
        runtime.invoke(CodeFunction(callable=caller, uses=[text_editor])).result(60)
    assert path.read_text() == before
