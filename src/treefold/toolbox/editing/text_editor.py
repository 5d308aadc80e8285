"""The function by which agents look at text files and change them."""

import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Literal, TypeVar

from treefold.core.code import CodeFunction
from treefold.core.errors import ClosedError, InvalidArgumentsError, InvalidValueError
from treefold.core.function import RunContext, SessionScope
from treefold.toolbox.editing.document import UTF_8, Document, read_document
from treefold.toolbox.editing.edits import Edited, insert_after, replace_once
from treefold.toolbox.editing.excerpt import show_lines
from treefold.toolbox.editing.file_error import FileError, shortened
from treefold.toolbox.editing.files import (
    Contents,
    is_folder,
    read_file,
    read_if_any,
    remove_file,
    write_file,
)
from treefold.toolbox.editing.history import Change, History
from treefold.toolbox.editing.lines import count_lines
from treefold.toolbox.editing.listing import list_folder
from treefold.toolbox.editing.places import Place, find_place

T = TypeVar("T")

Command = Literal["view", "create", "str_replace", "insert", "undo_edit"]

_AROUND: Final = 4  # lines shown before and after an edit
_LOCKS: Final = [threading.Lock() for _ in range(64)]  # one for each of as many groups of files

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
    ) -> None:
        self.root = None if root is None else Path(root).absolute()
        self.max_chars = max_chars
        if self.root is not None and not self.root.is_dir():
            raise InvalidValueError(f"the root {str(root)!r} is not a folder; make it first")
        if max_chars < 1:
            raise InvalidValueError(f"max_chars must be at least 1, not {max_chars!r}")
        where = "start at the folder in which the program runs"
        if self.root is not None:
            where = f"start at {self.root}, and no path may leave it"
        super().__init__(name=name, desc=_DESCRIPTION.format(where=where), callable=self._edit)

    def root_for(self, ctx: RunContext) -> Path | None:
        """Return the folder that the paths of a call start at and may not leave, if there is one.

        A subclass may have another for each call.
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
        place = find_place(path, self.root_for(ctx))
        if command == "view":
            return self._view(place, view_range)
        with _lock_of(place):
            if ctx.node.state.final:  # it was cancelled while others edited the file
                raise ClosedError(f"the call that was to edit {place.shown} has ended")
            history = _history_of(ctx)
            if command == "create":
                return _create(place, _given(file_text, "file_text", command), history)
            if command == "undo_edit":
                return _undo(place, history)
            before = read_file(place)
            document = read_document(before.raw, place.shown)
            if command == "insert":
                text = insert_text if insert_text is not None else new_str  # its older name
                edited = insert_after(
                    document.body,
                    _given(insert_line, "insert_line", command),
                    document.encode(_given(text, "insert_text", command), "insert_text"),
                )
            else:
                edited = replace_once(
                    document.body,
                    document.encode(_given(old_str, "old_str", command), "old_str"),
                    document.encode(new_str or "", "new_str"),
                )
            document = document.with_body(edited.body)
            kept = _write(place, document.raw, before, history)
        return f"Edited {place.shown}.{kept} {self._around(document, edited)}"

    def _view(self, place: Place, view_range: list[int] | None) -> str:
        if is_folder(place):
            if view_range:
                raise InvalidArgumentsError(
                    f"{shortened(place.shown)} is a folder, and view_range is for files; leave it"
                    " out"
                )
            return list_folder(place, self.max_chars)
        document = read_document(read_file(place).raw, place.shown)
        total = count_lines(document.body)
        first, last = _checked_range(view_range, total) if view_range else (1, total)
        if not total:
            return f"{place.shown} is empty."
        return show_lines(document, first, last, self.max_chars)

    def _around(self, document: Document, edited: Edited) -> str:
        """Return the lines that an edit touched, and some before and after."""
        total = count_lines(document.body)
        if not total:
            return "It is empty now."
        first = min(max(1, edited.first - _AROUND), total)
        last = min(max(edited.last, edited.first - 1) + _AROUND, total)
        shown = show_lines(document, first, last, self.max_chars)
        return f"Lines {first} to {last} of {total} are now:\n{shown}"


text_editor: Final = TextEditor()


def _create(place: Place, text: str, history: History) -> str:
    raw = Document(b"", UTF_8).encode(text, "file_text")
    before = read_if_any(place)
    kept = _write(place, raw, before, history)
    did = "Created" if before is None else "Replaced all that was in"
    total = count_lines(raw)
    return f"{did} {place.shown} with {total} line{'s' * (total != 1)}.{kept}"


def _undo(place: Place, history: History) -> str:
    change = history.last(place.real)
    if change is None:
        raise FileError(f"there is no edit of {shortened(place.shown)} by you that could be undone")
    before = read_file(place)
    if not change.left(before.raw):
        raise FileError(
            f"{shortened(place.shown)} was changed by somebody else after your last edit, which"
            " therefore cannot be undone; view it, and use str_replace"
        )
    if change.created:
        remove_file(place, before)
    else:
        write_file(place, change.undone(before.raw), before)
    history.forget(change)
    if change.created:
        return f"Removed {place.shown}, which your last edit had created."
    return f"Undid the last edit of {place.shown}."


def _write(place: Place, raw: bytes, before: Contents | None, history: History) -> str:
    """Write the file and remember what it was; return what there is to say about that."""
    write_file(place, raw, before)
    kept = history.add(Change.between(place.real, before and before.raw, raw))
    return "" if kept else " It is too large for this to be undone."


def _lock_of(place: Place) -> AbstractContextManager[object]:
    return _LOCKS[hash(place.real) % len(_LOCKS)]


def _history_of(ctx: RunContext) -> History:
    scope = SessionScope.Self if ctx.node.parent is None else SessionScope.Parent
    return ctx.get_or_put(scope, "treefold.text_editor", "history", History)


def _given(value: T | None, argument: str, command: str) -> T:
    if value is None:
        raise InvalidArgumentsError(f"{command} needs the argument {argument!r}; give it, too")
    return value


def _checked_range(view_range: list[int], total: int) -> tuple[int, int]:
    if len(view_range) != 2:
        raise InvalidArgumentsError(
            f"view_range is {view_range}; give two numbers, the first and the last line to show"
        )
    first, last = view_range
    last = total if last == -1 else last
    if not 1 <= first <= last <= total:
        raise InvalidArgumentsError(
            f"view_range is {view_range}, and the file has {total} lines; give two numbers from 1"
            f" to {total}, the smaller one first, or -1 as the second for the end"
        )
    return first, last
