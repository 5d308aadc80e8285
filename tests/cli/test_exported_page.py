"""An exported page: one file that needs nothing else, and in which nothing acts."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import survey_journals
from command_results import treefold
from survey_journals import HOSTILE, Journal


class Page(HTMLParser):
    """The elements of a page, and the text inside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is not None:
            self.inside.append((*self.tags[-1], data))

    @property
    def data(self) -> Any:
        """What the page shows."""
        found = [text for _, attrs, text in self.inside if attrs.get("id") == "treefold-data"]
        return json.loads("".join(found))


def export(journal: Journal, target: Path, run: object = None) -> str:
    args = [journal.id if run is None else run, "--html", target, "--store", journal.file]
    done = treefold("export", *args)
    assert (done.code, done.err) == (0, ""), done
    return target.read_text(encoding="utf-8")


def test_an_export_holds_the_whole_run(survey: Journal, tmp_path: Path):
    page = Page(export(survey, tmp_path / "run.html"))
    rows = treefold("tree", survey.id, "--json", "--store", survey.file).json
    assert set(page.data) >= {"journal", "trees", "rows", "details", "flame"}
    assert page.data["rows"] == rows
    assert sorted(page.data["details"], key=int) == [
        str(id) for id in sorted(row["id"] for row in rows)
    ]
    judged = page.data["details"][str(rows[3]["id"])]
    assert [part["kind"] for part in judged["transcript"]] == [
        "system", "user", "thinking", "call", "result", "text"
    ]  # fmt: skip


def test_an_export_loads_nothing(survey: Journal, tmp_path: Path):
    page = Page(export(survey, tmp_path / "run.html"))
    for tag, attrs in page.tags:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            address = attrs.get(name) or ""
            if tag != "a":
                assert address == "" or address.startswith("data:"), (tag, attrs)
    for tag, _, text in page.inside:
        if tag == "style":
            assert re.findall(r"@import|url\((?!['\"]?(data:|#))", text) == []
    code = "".join(
        text for tag, attrs, text in page.inside if tag == "script" and "id" not in attrs
    )
    addresses = set(re.findall(r"https?://[\w.:/-]+", code))
    assert {one for one in addresses if "www.w3.org" not in one} == set()
    assert re.findall(r"^\s*import\b.*from\s*['\"]", code, re.MULTILINE) == []


def test_an_export_has_a_policy_of_its_own(survey: Journal, tmp_path: Path):
    page = Page(export(survey, tmp_path / "run.html"))
    policies = [
        attrs.get("content") or ""
        for tag, attrs in page.tags
        if tag == "meta" and (attrs.get("http-equiv") or "").lower() == "content-security-policy"
    ]
    assert len(policies) == 1
    assert "default-src 'none'" in policies[0]
    assert "unsafe-eval" not in policies[0]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    return survey_journals.hostile(tmp_path_factory.mktemp("hostile"))


def test_hostile_text_in_an_export_is_data_and_nothing_else(hostile: Journal, tmp_path: Path):
    harmless = Page(export(survey_journals.finished(tmp_path), tmp_path / "harmless.html"))
    text = export(hostile, tmp_path / "hostile.html", 1)
    page = Page(text)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in harmless.tags]
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "\u2028" not in text
    assert page.data["details"]["1"]["transcript"][-1]["text"] == HOSTILE


def test_the_title_of_an_export_is_escaped(hostile: Journal, tmp_path: Path):
    text = export(hostile, tmp_path / "hostile.html", 1)
    head = text[: text.index("treefold-data")]
    assert "<b>" not in head
    assert "\x1b" not in text


def test_an_export_can_be_read_by_its_owner_only(survey: Journal, tmp_path: Path):
    export(survey, tmp_path / "run.html")
    assert (tmp_path / "run.html").stat().st_mode & 0o777 == 0o600


def test_an_export_of_an_unknown_run_writes_nothing(survey: Journal, tmp_path: Path):
    target = tmp_path / "run.html"
    treefold("export", "4711", "--html", target, "--store", survey.file).refused("4711")
    assert list(tmp_path.iterdir()) == []


def test_an_export_into_a_folder_that_is_not_there_is_refused(survey: Journal, tmp_path: Path):
    target = tmp_path / "no" / "run.html"
    done = treefold("export", survey.id, "--html", target, "--store", survey.file)
    done.refused("run.html")
