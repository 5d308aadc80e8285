"""Exports a tree to a file, and imports it into another journal.

The file has one JSON object per line, for each text and entry. Works with any store. A fork is
exported together with the trees that it was forked from.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec

from treefold.core.call_keys import is_continuation, of_continuation
from treefold.core.errors import FencedError, StoreError, UnknownNodeError
from treefold.core.events import TreeImported
from treefold.core.fact import convert, replace
from treefold.core.journaling import entry_of, hashes_in
from treefold.core.question import Question
from treefold.core.store import Batch, Call, Entry, Store
from treefold.core.value_codec import ValueEncoder
from treefold.stores.private_file import write_file
from treefold.stores.versions import other_version

FORMAT: Final = "treefold journal"
VERSION: Final = 2

_MAX_INTEGER: Final = 2**53  # that every JSON library represents exactly


def export_tree(store: Store, tree: int, path: str | Path) -> None:
    """Write a tree, and those it was forked from, to a file that only its owner can read.

    An existing file is replaced once everything is written.

    Raises:
        UnknownNodeError: there is no such tree.
        StoreError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from treefold import MemoryStore, Runtime, tool
        >>> from treefold.stores import export_tree, import_tree
        >>> @tool
        ... async def add(a: int, b: int) -> int:
        ...     return a + b
        >>> here, there = MemoryStore(), MemoryStore()
        >>> with Runtime(store=here) as runtime:
        ...     node = runtime.invoke(add, {"a": 1, "b": 2})
        ...     _ = node.result()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     export_tree(here, node.id, Path(folder) / "add.jsonl")
        ...     _ = there.join()
        ...     import_tree(there, Path(folder) / "add.jsonl")
        1
        >>> [row.function for row in there.trees()]
        ['add']
    """
    write_file(path, _with_end(_lines(store, tree)))


def import_tree(store: Store, path: str | Path) -> int:
    """Import a file that ``export_tree`` wrote, all or nothing; return the id of the tree.

    All nodes get new ids, and a key that is taken is dropped. A tree that was open stays open, and
    no process runs it until a person does ``runtime.resume(id)`` or ``treefold resume``: the file
    may be from any source, and a resumed tree makes the calls that it names. Call
    ``store.join()`` before, and do not use the store in a runtime at the same time, which would
    give the same ids to its own calls; neither applies to a store that has a cluster.

    Raises:
        StoreError: the file cannot be read, is damaged, or is of another version.
        UsageError: ``join`` was not called.

    Example:
        >>> from treefold import MemoryStore, StoreError
        >>> from treefold.stores import import_tree
        >>> try:
        ...     import_tree(MemoryStore(), "/nowhere/run.jsonl")
        ... except StoreError as error:
        ...     print(error)
        /nowhere/run.jsonl: it cannot be read (No such file or directory)
    """
    file = str(Path(path).expanduser().resolve())
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise StoreError(file, f"it cannot be read ({error.strerror or error})") from error
    try:
        tree, entries = _read(content)
        renumbering = _Renumbering(store, entries)
        renumbered = [renumbering.entry(entry) for entry in entries]
        renumbered += _marks(renumbered)
        new = renumbering.ids[tree]
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise StoreError(file, f"it cannot be imported: {_message(error)}") from error
    _append(store, renumbered)
    return new


def _marks(entries: Iterable[Entry]) -> list[Entry]:
    """Return the last entry of each tree, which says that it was imported."""
    numbers: dict[int, int] = {}
    for entry in entries:
        if entry.node == entry.tree:
            numbers[entry.node] = max(entry.number, numbers.get(entry.node, 0))
    return [
        entry_of(TreeImported(tree), ValueEncoder(), tree=tree, number=number + 1)
        for tree, number in numbers.items()
    ]


def _append(store: Store, entries: Sequence[Entry]) -> None:
    """Write *entries*; in a cluster as trees without an owner, which are not owed."""
    trees: dict[int, list[Entry]] = {}
    for entry in entries:
        trees.setdefault(entry.tree, []).append(entry)
    for outcome in store.append([Batch(entries=its_entries) for its_entries in trees.values()]):
        if isinstance(outcome, FencedError):
            raise outcome


# Writing


def _lines(store: Store, tree: int) -> Iterator[bytes]:
    trees: list[list[Entry]] = []
    source = tree
    # The fork is read first: the tree it was forked from can only grow meanwhile.
    while source:
        entries = store.entries(source)
        if not entries or (call := entries[0].call) is None:
            raise UnknownNodeError(f"{store.name} has no node:{source}")
        if call.source >= source:
            raise StoreError(store.name, f"tree {source} is a fork of the later tree {call.source}")
        trees.append(entries)
        source = call.source
    yield _line({"format": FORMAT, "version": VERSION, "store": store.id, "tree": tree})
    written: set[str] = set()
    # A tree is older than its forks.
    for entry in chain.from_iterable(reversed(trees)):
        hashes = _hashes(store, entry)
        for hash in hashes:
            if hash not in written:
                written.add(hash)
                yield _line({"hash": hash, "text": store.text(hash, tree=entry.tree)})
        yield _line({"entry": _plain(entry), "texts": hashes})


def _hashes(store: Store, entry: Entry) -> list[str]:
    try:
        return sorted(hashes_in(entry))
    except (RecursionError, ValueError) as error:
        raise StoreError(store.name, f"entry {entry.seq} cannot be read: {error}") from error


def _plain(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON data, without its texts and its position."""
    return msgspec.to_builtins(replace(entry, texts={}, seq=0))


def _line(data: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which has to be escaped
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _with_end(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield *lines*, and a last one with their number and checksum."""
    crc, count = 0, 0
    for line in lines:
        crc, count = crc32(line, crc), count + 1
        yield line
    yield _line({"lines": count, "crc": crc})


# Reading


def _read(content: bytes) -> tuple[int, list[Entry]]:
    """Return the tree that was exported, and all entries with their texts."""
    lines = content.splitlines(keepends=True)
    header = _header(lines[0] if lines else b"")
    before, end = b"".join(lines[:-1]), lines[-1]
    if end != _line({"lines": len(lines) - 1, "crc": crc32(before)}):
        raise ValueError("it is damaged or incomplete; get another copy")
    texts: dict[str, str] = {}
    entries: list[Entry] = []
    for line in lines[1:-1]:
        data = json.loads(line)
        if "text" in data:
            texts[data["hash"]] = data["text"]
        else:
            referenced = {hash: texts[hash] for hash in data["texts"]}
            entries.append(_entry(data["entry"], referenced))
    return header["tree"], entries


def _header(line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
        version = header["version"] if header["format"] == FORMAT else None
    except (AttributeError, KeyError, TypeError, ValueError):
        header, version = {"version": None}, None
    if not isinstance(version, int):
        raise ValueError("it is not an exported tree; give the path of another file")  # noqa: TRY004 - of the file
    if version != VERSION:
        raise ValueError(other_version(version, VERSION, "export the run again with this one"))
    return header


def _entry(data: dict[str, Any], texts: Mapping[str, str]) -> Entry:
    entry = replace(convert(data, Entry), texts=texts)
    call = entry.call
    numbers = [entry.tree, entry.node, entry.number]
    numbers += [] if call is None else [call.parent, call.index, call.source, call.inherited]
    for number in numbers:
        if not 0 <= number < _MAX_INTEGER:
            raise ValueError(f"{number} is not a valid number in an entry")
    return entry


def _message(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return f"it has invalid data ({error})"
    return str(error) if type(error) is ValueError else f"it has invalid data ({error!r})"


def _next_numbers(store: Store, nodes: int, trees: int) -> tuple[int, int]:
    """Return the first of so many unused node ids and tree numbers."""
    if (cluster := store.cluster) is not None:
        return cluster.drives.reserve(nodes, trees)
    node, number = store.highest()
    return node + 1, number + 1


class _Renumbering:
    """The ids and numbers that imported entries get in a store: the next ones, in the same order.

    The nodes that a fork shares are counted from its own id, so they are renumbered as well.
    """

    def __init__(self, store: Store, entries: Sequence[Entry]) -> None:
        calls = [(entry.node, entry.call) for entry in entries if entry.call is not None]
        if any(call.inherited > len(calls) for _, call in calls):
            raise ValueError("a fork in it shares more calls than there are")
        if not {entry.tree for entry in entries} <= {id for id, call in calls if not call.parent}:
            raise ValueError("the top-level call of a tree is missing")
        nodes = {id for entry in entries for id in (entry.node, entry.tree)}
        for id, call in calls:
            nodes.update(range(id, id + call.inherited + 1))
        tops = {id: call for id, call in calls if call.parent == 0}
        node, number = _next_numbers(store, len(nodes), len(tops))
        self.ids = dict(zip(sorted(nodes), range(node, node + len(nodes)), strict=True))
        self._numbers = {id: number + index for index, id in enumerate(sorted(tops))}
        self._taken = {call.key for call in tops.values() if store.find_key(call.key) is not None}

    def entry(self, entry: Entry) -> Entry:
        """Return *entry* with its new ids."""
        return replace(
            entry,
            tree=self.ids[entry.tree],
            node=self.ids[entry.node],
            body=self._body(entry),
            call=None if entry.call is None else self._call(entry.node, entry.call),
            question=None if entry.question is None else self._question(entry.question),
            settled=None if entry.settled is None else self._question_id(entry.settled),
        )

    def _call(self, node: int, call: Call) -> Call:
        if call.parent:
            return replace(call, parent=self.ids[call.parent])
        unnamed = call.key[:1] == "#" and call.key[1:].isdecimal()  # the key is its id
        named = not unnamed and call.key not in self._taken
        key = call.key if named else f"#{self.ids[node]}"
        source = self.ids[call.source] if call.source else 0
        if is_continuation(call.key):
            key = of_continuation(source)
        return replace(call, key=key, index=self._numbers[node], source=source)

    def _question(self, question: Question) -> Question:
        id, node = self._question_id(question.id), self.ids[question.node_id]
        return replace(question, id=id, node_id=node)

    def _question_id(self, id: str) -> str:
        node, _, number = id.partition("-")
        return f"{self.ids[int(node)]}-{number}"

    def _body(self, entry: Entry) -> str:
        """Return the body with the new number of the tree, and with new ids.

        Only the request of a call has ids in its body. Those of calls that are not in the file are
        left out, or refused: here they are the ids of other calls.
        """
        if entry.call is None:
            return entry.body
        body: dict[str, Any] = json.loads(entry.body)
        changed: dict[str, Any] = {}
        if not entry.call.parent and "sequence" in body:
            changed["sequence"] = self._numbers[entry.node]
        if "continues" in body:
            changed["continues"] = self.ids.get(body["continues"])
        if (options := body.get("options")) and "budgets_above" in options:
            above = list(map(self._budget_above, options["budgets_above"]))
            changed["options"] = options | {"budgets_above": above}
        return json.dumps(body | changed, separators=(",", ":")) if changed else entry.body

    def _budget_above(self, budget: dict[str, Any]) -> dict[str, Any]:
        """Return a ``BudgetAbove``; what was spent of it before counts as not known yet."""
        changed: dict[str, Any] = {"history": self.ids.get(budget.get("history", 0), 0)}
        if (owner := budget["node"]) is not None:
            changed["node"] = self.ids[owner]
        id, colon, place = budget["name"].partition(":")
        if colon and id.isdecimal():
            # An account of this name is that of a call.
            changed["name"] = f"{self.ids[int(id)]}:{place}"
        return budget | changed
