"""The function by which agents view and edit text files."""

import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Literal, TypeVar

from treefold.core.code import CodeFunction
from treefold.core.errors import ClosedError, InvalidArgumentsError, InvalidValueError
from treefold.core.function import Ask, RunContext, SessionScope
from treefold.core.parameter import JsonSchema
from treefold.toolbox.editing.document import UTF_8, Document, read_document
from treefold.toolbox.editing.edits import EditResult, insert_after, replace_once
from treefold.toolbox.editing.file_error import FileError, short_repr
from treefold.toolbox.editing.files import (
    Contents,
    is_folder,
    read_file,
    read_if_exists,
    remove_file,
    write_file,
)
from treefold.toolbox.editing.history import Change, History
from treefold.toolbox.editing.lines import count_lines
from treefold.toolbox.editing.paths import ResolvedPath, resolve_path
from treefold.toolbox.editing.view import list_folder, show_lines

T = TypeVar("T")

Command = Literal["view", "create", "str_replace", "insert", "undo_edit"]

_CONTEXT_LINES: Final = 4  # lines shown before and after an edit
# Files share a fixed number of locks, chosen by the hash of their path.
_LOCKS: Final = [threading.Lock() for _ in range(64)]

_DESCRIPTION: Final = """\
View, create and edit text files. Each call does one command on one path.

- view: show a file with line numbers (the number and the tab before each line are not part of \
it), or what is in a folder, two levels deep. view_range shows some lines of a long file.
- create: write file_text to a new file, together with the folders that are missing, or replace \
all of an existing file, which becomes UTF-8.
- str_replace: replace old_str, which must be in the file exactly once and match it exactly, \
indentation included, with new_str; without new_str it is deleted. Give enough lines around the \
change to make old_str unique.
- insert: insert insert_text as new lines after line insert_line; 0 inserts at the top.
- undo_edit: undo the last of your edits of this file that has not been undone; repeat it to go \
further back.

View a file before you edit it. Edits keep the line ends and the encoding of the file. \
Paths may be absolute or relative; relative ones {where}."""


class TextEditor(CodeFunction):
    r"""Views and edits text files, below *root* if one is given; shows at most *max_chars*.

    *ask* is that of ``@tool``: whether a person approves each call, such as
    ``ask=lambda args: args["command"] != "view"``.

    Example:
        >>> import tempfile
        >>> from treefold import Runtime
        >>> with tempfile.TemporaryDirectory() as folder, Runtime() as runtime:
        ...     edit = TextEditor(folder)
        ...     write = {"command": "create", "path": "a.txt", "file_text": "one\ntwo\n"}
        ...     runtime.invoke(edit, write).result()
        ...     runtime.invoke(edit, {"command": "view", "path": "a.txt"}).result()
        'Created a.txt with 2 lines.'
        '     1\tone\n     2\ttwo'
    """

    trained_as = "text_editor"

    def __init__(
        self,
        root: Path | str | None = None,
        *,
        max_chars: int = 30_000,
        name: str = "text_editor",
        ask: Ask = False,
    ) -> None:
        self.root = None if root is None else Path(root).absolute()
        self.max_chars = max_chars
        if self.root is not None and not self.root.is_dir():
            raise InvalidValueError(f"root must be an existing folder, got {str(root)!r}")
        if max_chars < 1:
            raise InvalidValueError(f"max_chars must be at least 1, got {max_chars!r}")
        where = "start at the folder in which the program runs"
        if self.root is not None:
            where = f"start at {self.root}, and no path may leave it"
        super().__init__(
            name=name, desc=_DESCRIPTION.format(where=where), callable=self._edit, ask=ask
        )

    def interface(self) -> JsonSchema:
        told = super().interface()
        if self.root is not None:
            told["description"] = self.description.replace(str(self.root), "root")
        return told

    def root_for(self, ctx: RunContext) -> Path | None:
        """Return the folder that the paths of a call are relative to and may not leave, if any.

        A subclass may return another for each call.
        """
        return self.root

    def _edit(  # noqa: PLR0913 - the arguments are those of the tool that models were trained on
        self,
        ctx: RunContext,
        command: Command,
        path: str,
        view_range: list[int] | None = None,
        file_text: str | None = None,
        old_str: str | None = None,
        new_str: str | None = None,
        insert_line: int | None = None,
        insert_text: str | None = None,
    ) -> str:
        """Do one command.

        Args:
            command: what to do.
            path: the file, or for view also a folder.
            view_range: for view of a file: the first and last line to show, counted from 1, such
                as [11, 20]; [11, -1] shows from line 11 to the end.
            file_text: for create: all that is to be in the file.
            old_str: for str_replace: the text to replace.
            new_str: for str_replace: what to put in its place.
            insert_line: for insert: the line to insert after; 0 for the top.
            insert_text: for insert: the lines to insert.
        """
        target = resolve_path(path, self.root_for(ctx))
        if command == "view":
            return self._view(target, view_range)
        with _lock_for(target):
            if ctx.node.state.final:  # it was cancelled while it waited for the lock
                raise ClosedError(f"the call that was to edit {target.given} has ended")
            history = _history_for(ctx)
            if command == "create":
                return _create(target, _required(file_text, "file_text", command), history)
            if command == "undo_edit":
                return _undo(target, history)
            before = read_file(target)
            document = read_document(before.raw, target.given)
            if command == "insert":
                text = insert_text if insert_text is not None else new_str  # its former name
                edited = insert_after(
                    document.body,
                    _required(insert_line, "insert_line", command),
                    document.encode(_required(text, "insert_text", command), "insert_text"),
                )
            else:
                edited = replace_once(
                    document.body,
                    document.encode(_required(old_str, "old_str", command), "old_str"),
                    document.encode(new_str or "", "new_str"),
                )
            document = document.with_body(edited.body)
            note = _write(target, document.raw, before, history)
        return f"Edited {target.given}.{note} {self._excerpt(document, edited)}"

    def _view(self, target: ResolvedPath, view_range: list[int] | None) -> str:
        if is_folder(target):
            if view_range:
                raise InvalidArgumentsError(
                    f"{short_repr(target.given)} is a folder, and view_range is for files; leave it"
                    " out"
                )
            return list_folder(target, self.max_chars)
        document = read_document(read_file(target).raw, target.given)
        total = count_lines(document.body)
        first, last = _checked_range(view_range, total) if view_range else (1, total)
        if not total:
            return f"{target.given} is empty."
        return show_lines(document, first, last, self.max_chars)

    def _excerpt(self, document: Document, edited: EditResult) -> str:
        """Return the lines that an edit touched, and some lines before and after."""
        total = count_lines(document.body)
        if not total:
            return "It is empty now."
        first = min(max(1, edited.first - _CONTEXT_LINES), total)
        last = min(max(edited.last, edited.first - 1) + _CONTEXT_LINES, total)
        lines = show_lines(document, first, last, self.max_chars)
        return f"Lines {first} to {last} of {total} are now:\n{lines}"


text_editor: Final = TextEditor()


def _create(target: ResolvedPath, text: str, history: History) -> str:
    raw = Document(b"", UTF_8).encode(text, "file_text")
    before = read_if_exists(target)
    note = _write(target, raw, before, history)
    did = "Created" if before is None else "Replaced all that was in"
    total = count_lines(raw)
    return f"{did} {target.given} with {total} line{'s' * (total != 1)}.{note}"


def _undo(target: ResolvedPath, history: History) -> str:
    change = history.last(target.real)
    if change is None:
        raise FileError(f"you have made no edit of {short_repr(target.given)} that can be undone")
    before = read_file(target)
    if not change.is_result(before.raw):
        raise FileError(
            f"{short_repr(target.given)} was changed by another writer after your last edit, which"
            " therefore cannot be undone; view it, and use str_replace"
        )
    if change.created:
        remove_file(target, before)
    else:
        write_file(target, change.revert(before.raw), before)
    history.forget(change)
    if change.created:
        return f"Removed {target.given}, which your last edit had created."
    return f"Undid the last edit of {target.given}."


def _write(target: ResolvedPath, raw: bytes, before: Contents | None, history: History) -> str:
    """Write the file and store the change; return a note if the change cannot be undone."""
    write_file(target, raw, before)
    note = history.add(Change.between(target.real, before and before.raw, raw))
    return "" if note else " It is too large for this to be undone."


def _lock_for(target: ResolvedPath) -> AbstractContextManager[object]:
    return _LOCKS[hash(target.real) % len(_LOCKS)]


def _history_for(ctx: RunContext) -> History:
    scope = SessionScope.Self if ctx.node.parent is None else SessionScope.Parent
    return ctx.get_or_put(scope, "treefold.text_editor", "history", History)


def _required(value: T | None, argument: str, command: str) -> T:
    if value is None:
        raise InvalidArgumentsError(f"{command} needs the argument {argument!r}")
    return value


def _checked_range(view_range: list[int], total: int) -> tuple[int, int]:
    if len(view_range) != 2:
        raise InvalidArgumentsError(
            f"view_range must be two numbers, the first and the last line to show; got {view_range}"
        )
    first, last = view_range
    last = total if last == -1 else last
    if not 1 <= first <= last <= total:
        raise InvalidArgumentsError(
            f"view_range must be two numbers from 1 to {total}, the number of lines in the file, in"
            f" ascending order, or -1 as the second for the end; got {view_range}"
        )
    return first, last
