"""Each provider takes the toolbox as it is, and calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

from patching import numbered
from treefold import Runtime, ToolResult, UserText
from treefold.core.transcript import ModelText
from treefold.toolbox import ApplyDiffPatch, Bash, FileError, TextEditor
from wire.protocols import Protocol, answer


async def test_a_model_edits_a_file(protocol: Protocol, tmp_path: Path):
    editor = TextEditor(tmp_path)
    on_the_wire = "str_replace_based_edit_tool" if protocol.name == "anthropic" else "text_editor"
    steps: list[dict[str, Any]] = [
        {"command": "create", "path": "a.txt", "file_text": "one\ntwo\n"},
        {"command": "str_replace", "path": "a.txt", "old_str": "two", "new_str": "three"},
        {"command": "view", "path": "a.txt", "view_range": [1, 2]},
    ]
    script = [
        protocol.calls((f"id_{n}", on_the_wire, json.dumps(step))) for n, step in enumerate(steps)
    ]
    async with protocol.server(*script, protocol.text("Done.")) as server, Runtime() as runtime:
        session = protocol.model(server).open("", [editor])
        await answer(session, UserText("Edit."))
        while session.pending:
            results = [
                ToolResult(call.id, await runtime.invoke(editor, call.args))
                for call in session.pending
            ]
            await answer(session, *results)

    assert (tmp_path / "a.txt").read_text() == "one\nthree\n"
    assert session.transcript[-1] == ModelText("Done.")
    told = [part.content for part in session.transcript if isinstance(part, ToolResult)]
    assert told[-1] == "     1\tone\n     2\tthree"
    described = "insert_text" in json.dumps(server.requests[0].json["tools"])
    assert described == (protocol.name != "anthropic")  # Claude was trained on it


async def test_a_model_runs_commands(protocol: Protocol, tmp_path: Path):
    shell = Bash(cwd=tmp_path)
    script = [
        protocol.calls(("id_1", "bash", json.dumps({"command": "echo hello > a.txt"}))),
        protocol.calls(("id_2", "bash", json.dumps({"command": "cat a.txt; false"}))),
    ]
    async with protocol.server(*script, protocol.text("Done.")) as server, Runtime() as runtime:
        session = protocol.model(server).open("", [shell])
        await answer(session, UserText("Run."))
        while session.pending:
            results = [
                ToolResult(call.id, await runtime.invoke(shell, call.args))
                for call in session.pending
            ]
            await answer(session, *results)
    told = [part.content for part in session.transcript if isinstance(part, ToolResult)]
    assert told == ["[no output]", "hello\n[exit code 1]"]
    [offered] = server.requests[0].json["tools"]
    if protocol.name == "anthropic":
        assert offered == {"type": "bash_20250124", "name": "bash"}


LEFT = "@@ -7,2 +7,2 @@\n line 7\n-line eight\n+LINE 8\n"


async def test_a_model_applies_a_rejected_hunk_by_edits(protocol: Protocol, tmp_path: Path):
    (tmp_path / "file").write_bytes(numbered(40))
    edit = {"command": "str_replace", "path": "file", "old_str": "line 8\n", "new_str": "LINE 8\n"}
    claude = protocol.name == "anthropic"
    on_the_wire = "str_replace_based_edit_tool" if claude else "edit_working_copy"
    script = [protocol.calls(("id_1", on_the_wire, json.dumps(edit))), protocol.text("Done.")]
    async with (
        protocol.server(*script) as server,
        Runtime(models=protocol.model(server)) as runtime,
    ):
        args = {"file": "file", "patch": LEFT}
        await runtime.invoke(ApplyDiffPatch(root=tmp_path), args)
    assert (tmp_path / "file").read_bytes() == numbered(40).replace(b"line 8\n", b"LINE 8\n")


async def test_a_model_applies_a_rejected_hunk_by_a_new_text(protocol: Protocol, tmp_path: Path):
    (tmp_path / "file").write_bytes(numbered(8))
    after = numbered(8).replace(b"line 8\n", b"LINE 8\n")
    result = json.dumps({"result": after.decode()})
    script = [protocol.calls(("id_1", "return_result", result))]
    async with (
        protocol.server(*script) as server,
        Runtime(models=protocol.model(server)) as runtime,
    ):
        args = {"file": "file", "patch": LEFT}
        await runtime.invoke(ApplyDiffPatch(root=tmp_path), args)
    assert (tmp_path / "file").read_bytes() == after


async def test_a_model_gives_up_on_what_is_left_of_a_patch(protocol: Protocol, tmp_path: Path):
    (tmp_path / "file").write_bytes(numbered(8))
    script = [protocol.calls(("id_1", "raise_exception", json.dumps({"msg": "no line eight"})))]
    async with (
        protocol.server(*script) as server,
        Runtime(models=protocol.model(server)) as runtime,
    ):
        args = {"file": "file", "patch": LEFT}
        with pytest.raises(FileError, match="AgentException: no line eight"):
            await runtime.invoke(ApplyDiffPatch(root=tmp_path), args)
    assert (tmp_path / "file").read_bytes() == numbered(8)
