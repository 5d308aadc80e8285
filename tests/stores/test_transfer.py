"""Trees that go from one journal to another in a file."""

import json
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from treefold import (
    CodeFunction,
    MemoryStore,
    NodeState,
    RunContext,
    Runtime,
    SqliteStore,
    StoreError,
)
from treefold.core.edit import Edit
from treefold.core.errors import UnknownNodeError, UsageError
from treefold.core.fact import replace
from treefold.stores import Entry, Store, TreeRow, export_tree, import_tree
from treefold.testing.store_suite import (
    a_question,
    asks,
    called,
    changed,
    ended,
    noted,
    settles,
    write,
)

LONG = "é 漢 \ud800 \u2028 \n " * 100


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tree.jsonl"


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.join()
    return store


@pytest.fixture(params=["memory", "file"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """A store of either kind, in which something has happened already."""
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "target.db")
    with closing(store):
        store.join()
        write(
            store,
            [
                called(1, key="=nightly"),
                called(5, tree=1, parent=1),
                called(6, index=2),
            ],
        )
        yield store


def says(node: int, number: int, text: str, hash: str, *, tree: int) -> Entry:
    """An entry that refers to a text as those of a runtime do."""
    body = json.dumps({"v": 1, "parts": [["ModelText", {"text": {"$": "text", "v": hash}}]]})
    return replace(noted(node, number, text, tree=tree, hash=hash), body=body)


def fill(store: Store) -> None:
    """Two trees, of which the second is a fork of the first, and one beside them."""
    first = replace(called(10, key="=nightly", index=4), body='{"sequence":4}')
    write(store, [first, called(11), says(10, 2, LONG, "aa", tree=10)])
    write(store, [called(13, tree=10, parent=10, key="a"), asks("13-1", 2, tree=10)])
    write(store, [settles("13-1", 3, tree=10), says(13, 4, LONG, "aa", tree=10)])
    write(store, [ended(13, 5, tree=10), ended(10, 3, state=NodeState.Error)])
    write(store, [replace(called(20, index=6, key="#20", source=10, inherited=1))])
    write(store, [called(21, tree=20, parent=20, key="a"), says(21, 2, "more", "bb", tree=20)])
    write(store, [called(25, tree=20, parent=21, key="b"), asks("25-3", 2, tree=20)])


def test_a_fork_goes_over_with_what_it_comes_from(store: MemoryStore, target: Store, file: Path):
    fill(store)
    export_tree(store, 20, file)
    assert import_tree(target, file) == 9
    ids = {10: 7, 13: 8, 20: 9, 21: 10, 25: 11}
    keys = {"=nightly": "#7", "#20": "#9"}  # the first was taken
    expected = [
        replace(
            entry,
            tree=ids[entry.tree],
            node=ids[entry.node],
            body=entry.body.replace('"sequence":4', '"sequence":3'),
            call=entry.call
            and replace(
                entry.call,
                parent=ids.get(entry.call.parent, 0),
                key=keys.get(entry.call.key, entry.call.key),
                index={10: 3, 20: 4}.get(entry.node, entry.call.index),
                source=ids.get(entry.call.source, 0),
            ),
            question={
                "13-1": replace(a_question("13-1"), id="8-1", node_id=8),
                "25-3": replace(a_question("25-3"), id="11-3", node_id=11),
            }.get(entry.question.id if entry.question else ""),
            settled="8-1" if entry.settled else None,
        )
        for entry in store.entries(10) + store.entries(20)
    ]
    *found, first = target.entries(7)
    *more, second = target.entries(9)
    found += more
    assert [(one.node, one.kind) for one in (first, second)] == [
        (7, "TreeImported"),
        (9, "TreeImported"),
    ]
    assert [json.loads(entry.body) for entry in found] == [
        json.loads(entry.body) for entry in expected
    ]
    assert [replace(entry, seq=0, body="") for entry in found] == [
        replace(entry, seq=0, body="") for entry in expected
    ]
    assert (target.text("aa"), target.text("bb")) == (LONG, "more")
    assert target.questions() == [replace(a_question("25-3"), id="11-3", node_id=11)]
    assert target.trees()[2:] == [
        TreeRow(
            id=7, number=3, key="#7", function="f", state=NodeState.Error, open=False, parked=False,
            source=0,
        ),
        TreeRow(
            id=9, number=4, key="#9", function="f", state=NodeState.Waiting, open=True, parked=True,
            source=7, driven=True,
        ),
    ]  # fmt: skip
    assert target.find(node=10) == 9
    assert target.highest() == (11, 4)


def test_a_tree_can_be_imported_often_and_keeps_its_key_if_that_is_free(
    store: MemoryStore, file: Path
):
    fill(store)
    export_tree(store, 10, file)
    target = MemoryStore()
    target.join()
    assert [import_tree(target, file) for _ in range(3)] == [1, 3, 5]
    assert [tree.key for tree in target.trees()] == ["=nightly", "#3", "#5"]
    write(target, [called(7, index=4)])
    for tree in (1, 3, 5):
        target.delete(tree)
    with pytest.raises(StoreError):
        target.text("aa")


def test_ids_of_nodes_that_only_a_fork_took_over_go_over_as_well(store: MemoryStore, file: Path):
    write(
        store,
        [
            called(1),
            ended(1),
            called(4, source=1, inherited=3),
            changed(4, 2, NodeState.Running),
        ],
    )
    write(store, [called(9, tree=4, parent=7)])  # of one that was taken over
    export_tree(store, 4, file)
    assert import_tree(store, file) == 11
    assert [store.find(node=node) for node in range(10, 17)] == [10, 11, 11, 11, 11, 11, None]
    *entries, mark = store.entries(11)
    assert [entry.call and entry.call.parent for entry in entries] == [0, None, 14]
    assert (mark.kind, mark.number) == ("TreeImported", 3)


async def _half(ctx: RunContext, text: str) -> str:
    return text[: len(text) // 2]


async def _quarter(ctx: RunContext, text: str) -> str:
    return await ctx.invoke(half, {"text": await ctx.invoke(half, {"text": text})})


half = CodeFunction(callable=_half, name="half")
quarter = CodeFunction(callable=_quarter, name="quarter", uses=[half])


def test_what_a_runtime_has_written_is_read_by_another(tmp_path: Path, file: Path):
    text = "0123456789abcdef" * 200
    with Runtime([quarter], store=tmp_path / "here.db") as runtime:
        node = runtime.invoke(quarter, {"text": text})
        assert node.result() == text[:800]
        inner = runtime.get_view(node.id).children[0]
        fork = runtime.fork(inner.id, edit=Edit(result="wxyz"))
        assert fork.result() == "wx"
    with SqliteStore(tmp_path / "here.db") as here, SqliteStore(tmp_path / "there.db") as there:
        export_tree(here, fork.id, file)
        there.join()
        write(there, [called(1), ended(1)])
        tree = import_tree(there, file)
    with Runtime([quarter], store=tmp_path / "there.db") as runtime:
        view = runtime.get_view(tree)
        assert (view.inputs, view.outputs) == ({"text": text}, "wx")
        assert [child.outputs for child in view.children] == ["wxyz", "wx"]
        source = there_source(tmp_path, tree)
        assert runtime.get_view(source).outputs == text[:800]


def there_source(folder: Path, tree: int) -> int:
    with SqliteStore(folder / "there.db") as store:
        [row] = [row for row in store.trees() if row.id == tree]
        return row.source


def test_the_file_is_private_and_written_whole_or_not_at_all(store: MemoryStore, file: Path):
    fill(store)
    file.write_text("before")
    file.chmod(0o644)
    with pytest.raises(UnknownNodeError, match="memory has no node:13"):
        export_tree(store, 13, file)
    assert file.read_text() == "before"
    write(store, [replace(noted(11, 2), body='{"$":"text","v":"cc"}')])
    with pytest.raises(StoreError, match="the text with the hash cc is missing"):
        export_tree(store, 11, file)
    assert file.read_text() == "before"
    export_tree(store, 10, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]
    assert file.read_text().count("漢") == 0  # for the half character beside it: all in escapes
    header = json.loads(file.read_text().splitlines()[0])
    assert header == {"format": "treefold journal", "version": 2, "store": store.id, "tree": 10}


def test_a_folder_that_is_not_there_says_so(store: MemoryStore, tmp_path: Path):
    fill(store)
    with pytest.raises(StoreError, match="no/a.jsonl: it cannot be written .No such file or dire"):
        export_tree(store, 10, tmp_path / "no" / "a.jsonl")
    with pytest.raises(StoreError, match="no/a.jsonl: it cannot be read .No such file or direct"):
        import_tree(store, tmp_path / "no" / "a.jsonl")


def unchanged(store: Store, act: Callable[[], object], kind: type[Exception]) -> str:
    before = store.last(), store.highest(), store.trees()
    with pytest.raises(kind) as refused:
        act()
    assert (store.last(), store.highest(), store.trees()) == before
    return str(refused.value)


def test_a_damaged_file_is_refused_whole(store: MemoryStore, file: Path):
    fill(store)
    export_tree(store, 20, file)
    content = file.read_bytes()
    first = content.index(b"\n") + 1
    for at in range(0, len(content), 37):
        for damaged in (content[:at], content[:at] + b"~" + content[at + 1 :]):
            file.write_bytes(damaged)
            message = unchanged(store, lambda: import_tree(store, file), StoreError)
            assert message.startswith(f"{file}: it cannot be imported: ")
            if at > first:
                assert message.endswith("it is damaged or incomplete; get another copy")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it is not an exported tree; give the path of another file"),
        ("hello", "it is not an exported tree; give the path of another file"),
        ('{"format":"other","version":1}\n', "it is not an exported tree; give the path of"),
        ("[]\n[]\n", "it is not an exported tree; give the path of another file"),
        (
            '{"format":"treefold journal","version":9,"tree":1}\n',
            "a newer treefold has written it (version 9, this one reads 2): use that treefold for",
        ),
    ],
)
def test_other_files_are_refused(store: MemoryStore, file: Path, content: str, message: str):
    file.write_text(content)
    with pytest.raises(StoreError, match=re.escape(message)):
        import_tree(store, file)


def test_a_call_that_was_given_no_key_gets_none_that_another_will_have(
    store: MemoryStore, target: Store, file: Path
):
    write(store, [called(1, key="#9"), ended(1)])
    export_tree(store, 1, file)
    import_tree(target, file)
    assert target.trees()[-1].key == f"#{target.trees()[-1].id}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"key":"a"', '"key":"a","inherited":9000000000000', "shares more calls than there are"),
        ('"parent":0', '"parent":7', "the top-level call of a tree is missing"),
        ('"node":1', '"node":[1]', "Expected `int`, got `array` - at `$.node`)"),
        ('"number":1', '"number":-1', "-1 is not a valid number in an entry"),
        ('"key":"a"', '"key":{}', "Expected `str`, got `object` - at `$.call.key`)"),
        ('"index":1', '"index":1000000000000000000000000', "is not a valid number in an entry"),
    ],
)
def test_a_forged_file_with_invalid_data_is_refused(
    store: MemoryStore, file: Path, old: str, new: str, message: str
):
    source = MemoryStore()
    source.join()
    write(source, [called(1, key="a"), ended(1)])
    export_tree(source, 1, file)
    *lines, _ = file.read_bytes().splitlines(keepends=True)
    content = b"".join(lines).replace(old.encode(), new.encode())
    end = {"lines": len(lines), "crc": crc32(content)}
    file.write_bytes(content + json.dumps(end, separators=(",", ":")).encode() + b"\n")
    assert unchanged(store, lambda: import_tree(store, file), StoreError).endswith(message)


def requested(node: int, body: Mapping[str, Any], **about: Any) -> Entry:
    return replace(called(node, **about), body=json.dumps(body))


def above(name: str, node: Any, history: int) -> dict[str, Any]:
    return {"name": name, "node": node, "budget": {"calls": 5}, "history": history, "calls": 2}


def test_ids_in_the_request_of_a_call_are_new_as_well(
    store: MemoryStore, target: Store, file: Path
):
    """Those that stay are ids of other calls there: accounts, and keys of idempotency."""
    budgets = [above("10:0", 10, 10), above("~runtime", None, 10), above("=team", None, 0)]
    top = {"sequence": 4, "continues": 11}
    write(store, [requested(10, top, key="a", index=4)])
    write(
        store,
        [
            requested(11, {"options": {"budgets_above": budgets}}, tree=10, parent=10, key="b"),
            requested(12, {"continues": 3}, tree=10, parent=10, key="c"),
        ],
    )
    export_tree(store, 10, file)
    import_tree(target, file)
    bodies = [json.loads(one.body) for one in target.entries(7) if one.call]
    renamed = [above("7:0", 7, 7), above("~runtime", None, 7), above("=team", None, 0)]
    assert bodies == [
        {"sequence": 3, "continues": 8},
        {"options": {"budgets_above": renamed}},
        {"continues": None},
    ]


@pytest.mark.parametrize("forged", [above("1:0", 10, 10), above("10:0", 1, 10), above("=", [], 0)])
def test_a_file_cannot_spend_of_the_budget_of_a_call_that_is_not_in_it(
    store: MemoryStore, target: Store, file: Path, forged: dict[str, Any]
):
    write(store, [requested(10, {"options": {"budgets_above": [forged]}}, key="a")])
    export_tree(store, 10, file)
    assert "it cannot be imported" in unchanged(
        target, lambda: import_tree(target, file), StoreError
    )


def test_only_the_owner_can_import_a_tree(store: MemoryStore, file: Path):
    fill(store)
    export_tree(store, 10, file)
    target = MemoryStore()
    assert unchanged(target, lambda: import_tree(target, file), UsageError)
