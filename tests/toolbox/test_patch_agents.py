"""Rejected hunks are applied by agents, and written only if all of them are."""

import os
import tempfile
from pathlib import Path

import pytest

from agent_scripts import asked, ended, told, until
from patching import apply, edits, gives_up, numbered, rewrites
from treefold import (
    AgentException,
    Budget,
    BudgetExceeded,
    CancellationException,
    DeniedError,
    ModelProviderException,
    NoAnswerError,
    Runtime,
    ToolUse,
    agent,
)
from treefold.core.errors import CallGraphError, UsageError
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel
from treefold.testing.scripted import Script
from treefold.toolbox import ApplyDiffPatch, FileError, TextEditor, apply_diff_patch, text_editor
from treefold.toolbox.patching.repair_agents import RepairAgents
from treefold.toolbox.patching.working_copy import WorkingCopyEditor

FITS = "@@ -1,2 +1,2 @@\n line 1\n-line 2\n+LINE 2\n"
LEFT = "@@ -7,2 +7,2 @@ f()\n line 7\n-line eight\n+LINE 8\n"
WHY = "the lines that it expects are not in the file"
EDIT = edits("str_replace", old_str="line 8\n", new_str="LINE 8\n")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary folders, in which nothing may be left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def contents(path: Path) -> bytes:
    return path.read_bytes()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(numbered(40))
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(numbered(8))
    return path


def test_a_file_that_is_much_larger_is_edited(large: Path, temporary: Path):
    model = ScriptedModel(edits("view"), EDIT, "Done.")

    said = apply(large, FITS + LEFT, model=model)

    assert said == f"Patched {large}: 1 hunk by git, 1 by an agent; 2 lines added, 2 removed."
    after = numbered(40).replace(b"line 2\n", b"LINE 2\n").replace(b"line 8\n", b"LINE 8\n")
    assert large.read_bytes() == after
    assert model.requests[0].functions == ("edit_working_copy", "raise_exception")
    assert asked(model.requests[0]) == (
        f"The file is file. These hunks are left:\n\nHunk 2 was not applied because {WHY}:\n{LEFT}"
    )
    viewed = told(model.requests[1])[0].content
    assert viewed.startswith("     1\tline 1\n     2\tLINE 2\n     3\tline 3\n")
    assert names_in(temporary) == []


def test_a_file_of_which_much_is_affected_is_written_anew(small: Path):
    text = numbered(8).decode().replace("line 2", "LINE 2")
    model = ScriptedModel(rewrites(text.replace("line 8", "LINE 8")))

    said = apply(small, FITS + LEFT, model=model)

    assert said == f"Patched {small}: 1 hunk by git, 1 by an agent; 2 lines added, 2 removed."
    assert small.read_text() == text.replace("line 8", "LINE 8")
    assert model.requests[0].functions == ("raise_exception", "return_result")
    assert asked(model.requests[0]) == (
        f"This is the file file:\n\n<file>\n{text}</file>\n\nThese hunks are left:\n\n"
        f"Hunk 2 was not applied because {WHY}:\n{LEFT}"
    )


def unknown(removed: int, context: int = 0) -> str:
    """Return a hunk that is rejected."""
    lines = " none\n" * context + "".join(f"-none {number}\n" for number in range(removed))
    return f"@@ -1 +1 @@\n{lines}+new\n"


@pytest.mark.parametrize(
    ("lines", "patch", "who"),
    [
        (100, unknown(30), "apply_diff_patch_by_editing"),
        (100, unknown(31), "apply_diff_patch_by_rewriting"),
        (100, unknown(15) + unknown(15), "apply_diff_patch_by_editing"),
        (100, unknown(15) + unknown(16), "apply_diff_patch_by_rewriting"),
        (30, unknown(1, context=8), "apply_diff_patch_by_editing"),
        (29, unknown(1, context=8), "apply_diff_patch_by_rewriting"),
    ],
)
async def test_who_is_asked_depends_on_how_much_is_left(
    tmp_path: Path, lines: int, patch: str, who: str
):
    (tmp_path / "file").write_bytes(numbered(lines))
    async with Runtime(models=ScriptedModel(gives_up("no"))) as runtime:
        args = {"file": str(tmp_path / "file"), "patch": patch}
        node = await ended(runtime.invoke(apply_diff_patch, args))
    [child] = node.get_children()
    assert not isinstance(child, list)
    assert child.function.name == who


def test_the_new_version_goes_where_it_is_wanted(large: Path, tmp_path: Path):
    said = apply(large, LEFT, tmp_path / "out", model=ScriptedModel(EDIT, "Done."))
    assert said.endswith(f" 1 line added, 1 removed. The new version is in {tmp_path}/out.")
    assert (tmp_path / "out").read_bytes() == numbered(40).replace(b"line 8\n", b"LINE 8\n")
    assert large.read_bytes() == numbered(40)


@pytest.mark.parametrize(
    "edit",
    [
        edits("str_replace", old_str="line 8\n", new_str="LÎNE 8\n"),
        edits("create", file_text=numbered(40).decode().replace("line 8\n", "LÎNE 8\n") + "é\n"),
    ],
    ids=["in part", "whole"],
)
@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-16"])
def test_what_is_edited_keeps_encoding_and_line_ends(large: Path, edit: ToolUse, encoding: str):
    before = (numbered(40).decode() + "é\n").replace("\n", "\r\n")
    large.write_bytes(before.encode(encoding))
    apply(large, LEFT.replace("LINE", "LÎNE"), model=ScriptedModel(edit, "Done."))
    assert large.read_bytes() == before.replace("line 8\r", "LÎNE 8\r").encode(encoding)


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-16"])
def test_what_is_written_anew_keeps_encoding_and_line_ends(small: Path, end: str, encoding: str):
    text = numbered(8).decode().replace("line 3", "é").removesuffix("\n")
    before = text.replace("\n", end)
    small.write_bytes(before.encode(encoding))
    new = f"```\n{text.replace('line 8', 'LÎNE 8')}\n```"
    apply(small, LEFT.replace("LINE", "LÎNE"), model=ScriptedModel(rewrites(new)))
    assert small.read_bytes() == before.replace("line 8", "LÎNE 8").encode(encoding)


def test_a_character_that_the_encoding_lacks_is_not_written(small: Path):
    before = numbered(8).replace(b"line 3", b"\xe9")
    small.write_bytes(before)
    new = before.decode("latin-1").replace("line 8", "LINE 8 €")
    with pytest.raises(FileError, match="the new text contains '.u20ac', which a file in Latin-1"):
        apply(small, LEFT, model=ScriptedModel(rewrites(new)))
    assert small.read_bytes() == before


def test_a_hunk_that_an_agent_left_out_is_named_and_nothing_is_written(large: Path):
    more = "@@ -9,2 +9,2 @@\n line 20\n-line twenty-one\n+LINE 21\n"
    with pytest.raises(FileError) as caught:
        apply(large, FITS + LEFT + more, model=ScriptedModel(EDIT, "Done."))
    assert str(caught.value) == (
        f"1 of 3 hunks cannot be applied to '{large}', and nothing was changed: hunk 3 ('@@ -9,2"
        f" +9,2 @@'): {WHY}, and an agent that should apply it did not add 'LINE 21'"
    )
    assert large.read_bytes() == numbered(40)


def test_what_an_agent_did_not_remove_is_named(small: Path):
    small.write_bytes(b"a\nx\nb\nx\n")
    patch = "@@ -9 +9 @@\n-x\n+y\n"
    with pytest.raises(FileError, match="several places, .* apply it did not remove 'x'"):
        apply(small, patch, model=ScriptedModel(rewrites("a\nx\ny\nb\nx\n")))


def test_an_agent_that_changes_more_than_it_should_is_not_believed(small: Path):
    new = "line 1\nline 2\nLINE 8\n# ... the rest\n"
    with pytest.raises(FileError, match="no hunk changes: 'line 3'; 'line 4'; .*; …"):
        apply(small, LEFT, model=ScriptedModel(rewrites(new)))
    assert small.read_bytes() == numbered(8)


def test_a_hunk_that_had_been_applied_before_is_left_as_it_is(small: Path):
    patch = "@@ -7,2 +7,2 @@ f()\n line 7\n-line eight\n+line 8\n"
    said = apply(small, patch, model=ScriptedModel(rewrites(small.read_text())))
    assert said == f"Patched {small}: 1 hunk by an agent; 0 lines added, 0 removed."
    assert small.read_bytes() == numbered(8)


@pytest.mark.parametrize(
    ("script", "cause", "says"),
    [
        ([gives_up("it is unclear")], AgentException, "AgentException: it is unclear"),
        ([ScriptedFailure(503, "overloaded")], ModelProviderException, "overloaded"),
        (["", "", ""], NoAnswerError, "apply_diff_patch_by_editing got no answer"),
        ([EDIT, EDIT, "Done."], BudgetExceeded, "the budget of the runtime is exceeded"),
    ],
)
def test_without_an_agent_that_can_nothing_is_written_and_all_that_is_left_is_named(
    large: Path, temporary: Path, script: list[Script], cause: type[Exception], says: str
):
    args = {"file": str(large), "patch": FITS + LEFT}
    model = ScriptedModel(*script)
    budget = Budget(calls=1) if cause is BudgetExceeded else None
    with (
        Runtime(models=model, budget=budget) as runtime,
        pytest.raises(FileError) as caught,
    ):
        runtime.invoke(apply_diff_patch, args).result(60)
    told = str(caught.value)
    assert told.startswith(
        f"1 of 2 hunks cannot be applied to '{large}', and nothing was changed: hunk 2 ('@@ -7,2"
        f" +7,2 @@ f()'): {WHY}. An agent could not apply them either: "
    )
    assert says in told
    assert isinstance(caught.value.__cause__, cause)
    assert large.read_bytes() == numbered(40)
    assert names_in(temporary) == []


def test_an_agent_may_not_be_allowed_to_edit(large: Path):
    model = ScriptedModel(EDIT, lambda request: gives_up(told(request)[0].content))
    args = {"file": str(large), "patch": LEFT}
    with (
        Runtime(models=model, disallowed_tools=["edit_working_copy"]) as runtime,
        pytest.raises(FileError, match=DeniedError.__name__),
    ):
        runtime.invoke(apply_diff_patch, args).result(60)


@pytest.mark.parametrize("whose", ["the call", "the agent"])
async def test_a_cancel_in_the_middle_leaves_no_trace(large: Path, temporary: Path, whose: str):
    model = ScriptedModel(EDIT, HANGS)
    async with Runtime(models=model) as runtime:
        node = runtime.invoke(apply_diff_patch, {"file": str(large), "patch": LEFT})
        await until(lambda: len(model.requests) == 2)
        [folder] = names_in(temporary)
        assert b"LINE 8\n" in contents(temporary / folder / "file")
        [child] = node.get_children()
        assert not isinstance(child, list)
        (node if whose == "the call" else child).cancel("enough")
        error = CancellationException if whose == "the call" else FileError
        with pytest.raises(error, match="enough"):
            await node
    assert contents(large) == numbered(40)
    assert names_in(temporary) == []


async def test_a_cancel_at_any_moment_leaves_no_trace(large: Path, temporary: Path):
    for requests in range(8):
        model = ScriptedModel(*[edits("create", f"a/{n}/b", file_text="x") for n in range(9)])
        async with Runtime(models=model) as runtime:
            node = runtime.invoke(apply_diff_patch, {"file": str(large), "patch": LEFT})
            await until(lambda: len(model.requests) > requests)  # noqa: B023 - it is over by then
            node.cancel()
            await ended(node)
    assert contents(large) == numbered(40)
    assert names_in(temporary) == []


def test_a_file_that_changes_meanwhile_is_not_overwritten(large: Path):
    def interfering(request: object) -> str:
        large.write_text("theirs")
        return "Done."

    with pytest.raises(FileError, match="changed by another writer"):
        apply(large, LEFT, model=ScriptedModel(EDIT, interfering))
    assert large.read_text() == "theirs"


def test_an_agent_cannot_leave_its_working_copy(large: Path, temporary: Path):
    (large.parent / "secret").write_text("line 8\n")
    paths = ["../../secret", str(large), "/etc/passwd", "~/.profile", ".."]
    attempts = [edits("view", path) for path in paths]
    attempts += [edits("create", path, file_text="x") for path in paths]
    model = ScriptedModel(*attempts, EDIT, "Done.")
    apply("file", LEFT, root=large.parent, model=model)
    refusals = told(model.requests[-1])[:-1]
    assert len(refusals) == 10
    assert all("leads out of" in refusal.content and refusal.is_error for refusal in refusals)
    assert large.read_bytes() == numbered(40).replace(b"line 8\n", b"LINE 8\n")
    assert names_in(large.parent) == ["file", "secret", "temporary"]
    assert names_in(temporary) == []


def test_what_an_agent_puts_beside_its_working_copy_is_gone(large: Path, temporary: Path):
    model = ScriptedModel(edits("create", "notes/a.txt", file_text="x"), EDIT, "Done.")
    apply(large, LEFT, model=model)
    assert names_in(temporary) == []
    assert names_in(large.parent) == ["file", "temporary"]


def test_the_editor_of_working_copies_is_of_no_use_to_others(large: Path):
    args = {"command": "view", "path": str(large)}
    with (
        Runtime() as runtime,
        pytest.raises(UsageError, match="a caller with the argument 'folder'"),
    ):
        runtime.invoke(WorkingCopyEditor(), args).result(60)


def test_a_model_of_its_own_is_asked_instead_of_the_default(small: Path):
    model = ScriptedModel(rewrites(numbered(8).decode().replace("line 8", "LINE 8")))
    with Runtime(models=ScriptedModel()) as runtime:
        args = {"file": str(small), "patch": LEFT}
        runtime.invoke(ApplyDiffPatch(model=model), args).result(60)
    assert small.read_bytes() == numbered(8).replace(b"line 8", b"LINE 8")


def test_a_model_that_there_is_not_is_a_fault_at_start():
    with pytest.raises(
        CallGraphError,
        match="apply_diff_patch > .*_by_editing: no provider .*'nobody'",
    ):
        Runtime([ApplyDiffPatch(model="nobody:x")])


def test_it_can_be_used_beside_any_text_editor(tmp_path: Path):
    for editor in (text_editor, TextEditor(tmp_path)):

        @agent(uses=[editor, apply_diff_patch])
        def work() -> str:
            return "Work."

        runtime = Runtime([work], models=ScriptedModel())
        assert {editor.name, apply_diff_patch.name} <= runtime.invocable_functions.keys()
        runtime.close()


def test_the_editor_says_where_its_paths_start():
    [editor, _] = RepairAgents("patch", None).by_editing.uses
    assert "relative ones start at the folder of the file that you were given" in editor.description


def test_several_of_them_in_one_program_need_names_of_their_own(tmp_path: Path):
    second = ApplyDiffPatch(root=tmp_path, name="patch_here")
    names = Runtime([apply_diff_patch, second]).invocable_functions
    assert {"patch_here", "patch_here_by_editing", "patch_here_by_rewriting"} <= names.keys()
