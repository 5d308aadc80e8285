"""Which journal, run and call a command line means."""

from pathlib import Path

import pytest

from small_journal import deploying
from treefold import Runtime, attach
from treefold.cli.journal import node_id, observe, run_id
from treefold.core.errors import InvalidValueError, TreefoldError


def test_the_journal_is_the_option_else_the_variable_else_run_db(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(journal.parent)
    monkeypatch.delenv("TREEFOLD_STORE", raising=False)
    for store in [None, str(journal)]:
        with observe(store) as observer:
            assert [tree.function for tree in observer.trees()] == ["report", "publish", "deploy"]
    other = tmp_path / "other.db"
    with Runtime([deploying], store=other):
        pass
    monkeypatch.setenv("TREEFOLD_STORE", str(other))
    with observe(None) as observer:
        assert observer.trees() == []
    with observe(str(journal)) as observer:
        assert len(observer.trees()) == 3


def test_where_there_is_no_journal_it_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TREEFOLD_STORE", raising=False)
    with pytest.raises(TreefoldError) as caught:
        observe(None)
    assert str(caught.value) == (
        "run.db: there is no such journal; give --store FILE or set TREEFOLD_STORE"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_named_by_its_number_its_key_or_as_the_last_and_a_call_by_its_path(journal: Path):
    with attach(journal) as observer:
        names = ["1", "3", "1.2", "nightly", "=nightly", "last", "node:4"]
        ids = {text: node_id(observer, text) for text in names}
        assert [tree.id for tree in observer.trees()] == [1, 7, 8]
        assert ids == {
            "1": 1,
            "3": 8,
            "1.2": 3,
            "nightly": 1,
            "=nightly": 1,
            "last": 8,
            "node:4": 4,
        }
        assert {text: run_id(observer, text) for text in ["1", "nightly", "3", "node:8"]} == {
            "1": 1,
            "nightly": 1,
            "3": 8,
            "node:8": 8,
        }
        for text in ("node:4", "1.2.1"):
            with pytest.raises(InvalidValueError, match="is not a whole run: give 1"):
                run_id(observer, text)


def test_a_key_that_looks_like_something_else_is_written_with_a_sign(tmp_path: Path):
    path = tmp_path / "run.db"
    with Runtime([deploying], store=path) as runtime:
        runtime.invoke(deploying, key="7")
        runtime.invoke(deploying, key="last")
        runtime.invoke(deploying, key="=odd")
        runtime.invoke(deploying, key="odd")
        runtime.invoke(deploying, key="node:1")
    with attach(path) as observer:
        assert node_id(observer, "=7") == 1
        assert node_id(observer, "=last") == 2
        assert node_id(observer, "last") == 5
        assert node_id(observer, "==odd") == 3
        assert node_id(observer, "=odd") == node_id(observer, "odd") == 4
        assert node_id(observer, "=node:1") == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("99", "there is no run 99; 'treefold ps' lists them"),
        ("8", "there is no run 8"),
        ("node:99", "has no node:99"),
        ("9" * 5000, "there is no run 999"),
        ("1.9", "there is no call 1.9; 'treefold tree 1' shows the paths of the run"),
        ("9.1", "there is no run 9"),
        (
            "weekly",
            "there is no run with the key 'weekly'; 'treefold ps' lists them. Give a run's number",
        ),
        ("", "there is no run with the key ''"),
    ],
)
def test_what_is_not_there_is_said_with_what_can_be_given(journal: Path, text: str, said: str):
    with attach(journal) as observer, pytest.raises(TreefoldError) as caught:
        node_id(observer, text)
    assert said in str(caught.value)


def test_a_journal_without_a_run_has_no_last_one(tmp_path: Path):
    with Runtime([deploying], store=tmp_path / "run.db"):
        pass
    with attach(tmp_path / "run.db") as observer, pytest.raises(TreefoldError) as caught:
        node_id(observer, "last")
    assert str(caught.value) == "there is no run in the journal yet"
