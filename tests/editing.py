"""Calls of the text editor, as tests make them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from treefold import CodeFunction, RunContext, Runtime
from treefold.toolbox import TextEditor, text_editor

Call = Callable[..., str]


def call(editor: TextEditor, command: str, path: Path | str, **args: Any) -> str:
    """Make one call at top level."""
    with Runtime() as runtime:
        return runtime.invoke(editor, {"command": command, "path": str(path), **args}).result(60)


def edit(command: str, path: Path | str, **args: Any) -> str:
    """Make one call of the editor that has no root."""
    return call(text_editor, command, path, **args)


def as_one_caller(path: Path, work: Callable[[Call], Any]) -> Any:
    """Let *work* make several calls about one file that have the same parent."""

    def caller(ctx: RunContext) -> Any:
        def do(command: str, **args: Any) -> str:
            args |= {"command": command, "path": str(path)}
            return ctx.invoke(text_editor, args).result(60)

        return work(do)

    with Runtime() as runtime:
        return runtime.invoke(CodeFunction(callable=caller, uses=[text_editor])).result(60)
