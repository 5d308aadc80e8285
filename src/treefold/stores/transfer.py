"""One tree as a file that another journal can take in: JSON, a line for each text and entry.

Knows the contract of a store and nothing of any one. A fork goes with the trees that it comes from.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from treefold.core.errors import StoreError, UnknownNodeError
from treefold.core.packing import texts_in
from treefold.core.question import Question, QuestionKind
from treefold.core.states import NodeState
from treefold.core.store import Call, Entry, Store
from treefold.stores.private_file import write_file

FORMAT: Final = "treefold journal"
_ANY_FORMAT: Final = " journal"  # how it ends; files are older than the name before it
VERSION: Final = 1

_HIGHEST: Final = 2**53  # number that anybody who writes JSON knows
_CALL: Final = {
    **dict.fromkeys(("parent", "index", "source", "inherited"), int),
    **dict.fromkeys(("key", "function"), str),
    "idles": bool,
}
_ENTRY: Final = {
    **dict.fromkeys(("tree", "node", "number"), int),
    **dict.fromkeys(("kind", "body", "settled"), str),
    "at": int | float,
}


def export_tree(store: Store, tree: int, path: str | Path) -> None:
    """Write a tree, and those that it is a fork of, into a file that only its owner can read.

    What was there is replaced when all is written.

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
        ...     _ = there.drive()
        ...     import_tree(there, Path(folder) / "add.jsonl")
        1
        >>> [row.function for row in there.trees()]
        ['add']
    """
    write_file(path, _with_end(_lines(store, tree)))


def import_tree(store: Store, path: str | Path) -> int:
    """Take in what ``export_tree`` has written, all or nothing; return the id of the tree.

    Everything gets ids of its own here, and a key that another tree has is left out. A tree that
    was open is open here, too. Call ``store.drive()`` before, and use no runtime on it meanwhile:
    it would give the same ids to its own calls.

    Raises:
        StoreError: the file cannot be read, is damaged, or is from a newer version.
        UsageError: ``drive`` was not called.

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
        moved = _Move(store, entries)
        fitting = [moved.entry(entry) for entry in entries]
        new = moved.ids[tree]
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise StoreError(file, f"it cannot be taken in: {_words(error)}") from error
    store.append(fitting)
    return new


# Writing


def _lines(store: Store, tree: int) -> Iterator[bytes]:
    trees: list[list[Entry]] = []
    source = tree
    while source:  # first the fork: what it comes from can only have grown since
        entries = store.entries(source)
        if not entries or (call := entries[0].call) is None:
            raise UnknownNodeError(f"{store.name} has no tree {source}")
        if call.source >= source:
            raise StoreError(store.name, f"tree {source} is a fork of {call.source}, a later one")
        trees.append(entries)
        source = call.source
    yield _line({"format": FORMAT, "version": VERSION, "store": store.id, "tree": tree})
    written: set[str] = set()
    for entry in sorted((entry for tree in trees for entry in tree), key=lambda entry: entry.seq):
        hashes = _hashes(store, entry)
        for hash in hashes:
            if hash not in written:
                written.add(hash)
                yield _line({"hash": hash, "text": store.text(hash)})
        yield _line({"entry": _plain(entry), "texts": hashes})


def _hashes(store: Store, entry: Entry) -> list[str]:
    try:
        lines = map(json.loads, entry.body.split("\n"))
        return sorted({hash for line in lines for hash in texts_in(line)})
    except (RecursionError, ValueError) as error:
        raise StoreError(store.name, f"entry {entry.seq} cannot be read: {error}") from error


def _plain(entry: Entry) -> dict[str, Any]:
    """Return an entry as data, without what is not said or only said here."""
    said = {name: value for name, value in asdict(entry).items() if value is not None}
    return {name: value for name, value in said.items() if name not in {"texts", "seq"}}


def _line(data: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # half a character, which only an escape can say
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _with_end(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield *lines*, and a last one by which damage is noticed."""
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
        raise ValueError("it is not what was written, or not all of it; get another copy")
    texts: dict[str, str] = {}
    entries: list[Entry] = []
    for line in lines[1:-1]:
        data = json.loads(line)
        if "text" in data:
            texts[data["hash"]] = data["text"]
        else:
            said = {hash: texts[hash] for hash in data["texts"]}
            entries.append(_entry(data["entry"], said))
    return header["tree"], entries


def _header(line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
        version = header["version"] if header["format"].endswith(_ANY_FORMAT) else None
    except (AttributeError, KeyError, TypeError, ValueError):
        header, version = {"version": None}, None
    if not isinstance(version, int):
        raise ValueError("no tree was exported into it; give the path of another file")  # noqa: TRY004 - of the file
    if version > VERSION:
        raise ValueError(
            f"a newer treefold has written it (version {version}, this one knows {VERSION}); "
            "install that treefold"
        )
    return header


def _entry(data: dict[str, Any], texts: Mapping[str, str]) -> Entry:
    said = dict(data)
    _check(said, _ENTRY)
    if "call" in said:
        _check(said["call"], _CALL)
        said["call"] = Call(**said["call"])
    if "state" in said:
        said["state"] = NodeState(said["state"])
    if "question" in said:
        question = said["question"]
        kind, choices = QuestionKind(question["kind"]), tuple(question["choices"])
        said["question"] = Question(**question | {"kind": kind, "choices": choices})
    return Entry(**said, texts=texts)


def _check(said: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise ValueError if something is no such thing as a store keeps there."""
    for name, kind in kinds.items():
        value = said.get(name)
        if not isinstance(value, kind | None) or (kind is int and not -1 < (value or 0) < _HIGHEST):
            raise ValueError(f"{value!r} is no {name} of an entry")


def _words(error: Exception) -> str:
    return str(error) if type(error) is ValueError else f"something in it is wrong ({error!r})"


class _Move:
    """Which ids and numbers what is taken in gets in a store: the next, in the same order.

    The nodes that a fork took over are counted from its own id, so that these are moved as well.
    """

    def __init__(self, store: Store, entries: Sequence[Entry]) -> None:
        node, number = store.highest()
        calls = [(entry.node, entry.call) for entry in entries if entry.call is not None]
        if any(call.inherited > len(calls) for _, call in calls):
            raise ValueError("a fork in it has more calls than there are")
        if not {entry.tree for entry in entries} <= {id for id, call in calls if not call.parent}:
            raise ValueError("the top-level call of a tree is not in it")
        nodes = {id for entry in entries for id in (entry.node, entry.tree)}
        for id, call in calls:
            nodes.update(range(id, id + call.inherited + 1))
        self.ids = dict(zip(sorted(nodes), range(node + 1, node + 1 + len(nodes)), strict=True))
        tops = {id: call for id, call in calls if call.parent == 0}
        self._numbers = {id: number + place for place, id in enumerate(sorted(tops), 1)}
        self._taken = {call.key for call in tops.values() if store.find_key(call.key) is not None}

    def entry(self, entry: Entry) -> Entry:
        """Return *entry* as it is to be appended."""
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
        unnamed = call.key[:1] == "#" and call.key[1:].isdecimal()  # it is called by its id
        named = not unnamed and call.key not in self._taken
        return replace(
            call,
            key=call.key if named else f"#{self.ids[node]}",
            index=self._numbers[node],
            source=self.ids[call.source] if call.source else 0,
        )

    def _question(self, question: Question) -> Question:
        id, node = self._question_id(question.id), self.ids[question.node_id]
        return replace(question, id=id, node_id=node)

    def _question_id(self, id: str) -> str:
        node, _, number = id.partition("-")
        return f"{self.ids[int(node)]}-{number}"

    def _body(self, entry: Entry) -> str:
        """Return the body, which has no ids in it, with the number of the tree as it is here."""
        if entry.call is None or entry.call.parent:
            return entry.body
        body = json.loads(entry.body)
        if "sequence" not in body:
            return entry.body
        return json.dumps(body | {"sequence": self._numbers[entry.node]}, separators=(",", ":"))
