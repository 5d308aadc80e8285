"""A run as a file of its own."""

import json
from pathlib import Path

import pytest

from treefold import MemoryStore, attach
from treefold.cli import main
from treefold.stores import import_tree
from treefold.views import data


def test_the_data_of_a_run_is_all_there_is_to_be_said(journal: Path, tmp_path: Path):
    target = tmp_path / "run.json"
    assert main(["export", "nightly", "--json", str(target), "--store", str(journal)]) == 0
    found = json.loads(target.read_text())
    with attach(journal) as observer:
        view, row = observer.get_view(1), observer.trees()[0]
    assert found == json.loads(
        json.dumps({
            "journal": {"name": "run.db", "driven": False, "version": found["journal"]["version"]},
            "trees": [data.tree(row, 0)],
            "rows": data.rows(view),
            "details": data.details(view),
            "flame": {by: data.flame(view, by) for by in ("time", "tokens", "money")},
            "shared": {},
            "summary": data.summary(view),
            "timing": data.timing(view),
        })
    )
    assert target.stat().st_mode & 0o777 == 0o600


def test_the_data_and_the_tree_may_be_printed(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["export", "nightly", "--json", "-", "--store", str(journal)]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["id"] == 1
    target = tmp_path / "run.jsonl"
    assert main(["export", "nightly", "--tree", str(target), "--store", str(journal)]) == 0
    assert main(["export", "nightly", "--tree", "-", "--store", str(journal)]) == 0
    assert capsys.readouterr().out == target.read_text("utf-8")


@pytest.mark.parametrize("option", ["--html", "--json", "--tree"])
def test_a_call_in_a_run_is_not_exported_but_the_run_is_named(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
):
    target = tmp_path / "run"
    for name in ("1.3", "node:6"):
        assert main(["export", name, option, str(target), "--store", str(journal)]) == 2
        assert capsys.readouterr().err == ("treefold export: call 1.3 is not a whole run: give 1\n")
    assert not target.exists()


def test_the_page_holds_the_same(journal: Path, tmp_path: Path):
    html, plain = tmp_path / "run.html", tmp_path / "run.json"
    files = ["--html", str(html), "--json", str(plain)]
    assert main(["export", "last", *files, "--store", str(journal)]) == 0
    found = json.loads(plain.read_text())
    assert found["trees"][0]["questions"] == 1
    assert html.stat().st_mode & 0o777 == 0o600
    [written] = [
        line
        for line in html.read_text().splitlines()
        if line.startswith('<script type="application/json" id="treefold-data">')
    ]
    held = json.loads(written.partition(">")[2].removesuffix("</script>"))
    assert {name: held[name] for name in found} == found


def test_a_tree_can_be_imported_into_another_journal(journal: Path, tmp_path: Path):
    target = tmp_path / "run.jsonl"
    assert main(["export", "nightly", "--tree", str(target), "--store", str(journal)]) == 0
    other = MemoryStore()
    other.join()
    tree = import_tree(other, target)
    with attach(other) as there, attach(journal) as here:
        rows = [data.rows(there.get_view(tree)), data.rows(here.get_view(1))]
    for row in (rows[0][0], rows[1][0]):
        del row["seq"]  # there is one event more, which says that it was imported
    assert rows[0] == rows[1]
    assert target.stat().st_mode & 0o777 == 0o600


def test_an_export_without_a_file_or_a_folder_for_it_is_exit_code_2(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["export", "--store", str(journal)]) == 2
    assert capsys.readouterr().err == (
        "treefold export: say what to write: --html FILE, --json FILE or --tree FILE\n"
    )
    for option in ("--html", "--json", "--tree"):
        target = tmp_path / "nowhere" / "run"
        assert main(["export", option, str(target), "--store", str(journal)]) == 2
        assert capsys.readouterr().err == (
            f"treefold export: {target}: it cannot be written (No such file or directory); check"
            " its folder and the disk\n"
        )
