"""Calls of apply_diff_patch, as tests make them."""

from pathlib import Path
from textwrap import dedent
from typing import Any

from treefold import Runtime, ToolUse
from treefold.models import Model
from treefold.testing import ScriptedModel
from treefold.toolbox import ApplyDiffPatch, apply_diff_patch
from treefold.toolbox.patching.file_diff import parse_patch
from treefold.toolbox.patching.hunk import Hunk


def apply(
    file: Path | str,
    patch: Path | str,
    output: Path | str | None = None,
    root: Path | None = None,
    model: Model | None = None,
) -> str:
    """Make one call at top level; without *model*, there is no agent that could help."""
    function = apply_diff_patch if root is None else ApplyDiffPatch(root=root)
    args = {"file": str(file), "patch": str(patch)}
    if output is not None:
        args["output"] = str(output)
    with Runtime(models=model or ScriptedModel()) as runtime:
        return runtime.invoke(function, args).result(60)


def edits(command: str, path: str = "file", **args: Any) -> ToolUse:
    """Return the call by which a model edits a working copy."""
    return ToolUse("1", "edit_working_copy", {"command": command, "path": path, **args})


def rewrites(text: str) -> ToolUse:
    """Return the call by which a model gives the new text of a file."""
    return ToolUse("1", "return_result", {"result": text})


def gives_up(why: str) -> ToolUse:
    """Return the call by which a model gives up."""
    return ToolUse("1", "raise_exception", {"msg": why})


def text(block: str) -> str:
    """Return an indented block as the text that it stands for."""
    return dedent(block).removeprefix("\n")


def hunks_in(patch: str) -> list[Hunk]:
    """Return all the hunks of a patch."""
    return [hunk for file_diff in parse_patch(patch.encode()) for hunk in file_diff.hunks]


def numbered(total: int) -> bytes:
    """Return that many lines, each with its number."""
    return b"".join(b"line %d\n" % number for number in range(1, total + 1))
