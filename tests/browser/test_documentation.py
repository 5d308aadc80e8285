"""The documentation as people read it: built without a network, and opened in a browser."""

import ast
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from browser.conftest import Eyes

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
FENCED = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
STUBS = [*SOURCE.glob("treefold/*.pyi"), *SOURCE.glob("treefold/*/__init__.pyi")]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    # It is strict: a broken link, a missing anchor, a page outside the menu are warnings.
    assert (built.returncode, built.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(timeout=60)


def exported(stub: Path) -> dict[str, str]:
    """Return the names that *stub* exports, each with the module that people import it from."""
    module = ".".join(stub.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    found = ast.walk(ast.parse(stub.read_text("utf-8")))
    imports = [node for node in found if isinstance(node, ast.ImportFrom) and node.module != module]
    return {str(alias.asname): module for node in imports for alias in node.names}


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: f"{stub.parent.name}-{stub.stem}")
def test_the_reference_has_every_public_name(site: Path, stub: Path):
    pages = "".join(page.read_text("utf-8") for page in site.glob("reference/api/*.html"))
    told = set(re.findall(r'id="(treefold\.\w+\.\w+)"', pages))
    names = exported(stub)
    if set(names.values()) == {"treefold"}:  # they are shown in the module of their topic
        missing = names.keys() - {name.rpartition(".")[2] for name in told}
        assert missing <= {"__version__", "SessionStore"}
        assert "SessionStore" in pages
    else:
        assert {f"{module}.{name}" for name, module in names.items()} <= told


def test_programs_find_every_page_as_markdown(site: Path):
    settings = (ROOT / "mkdocs.yml").read_text("utf-8").replace("README.md", "index.md")
    menu = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", settings, re.MULTILINE)
    text = (site / "llms.txt").read_text("utf-8")
    assert re.findall(r"\]\(([^)]+)\)", text) == menu
    for page in menu:
        assert (site / page).read_text("utf-8").startswith("# ")


def test_no_link_of_a_page_as_markdown_is_dead(site: Path):
    pages = [page for page in site.rglob("*.md") if "files" not in page.parts]
    assert pages
    dead = [
        (page.relative_to(site).as_posix(), path)
        for page in pages
        for path in LINK.findall(FENCED.sub("", page.read_text("utf-8")))
        if not (page.parent / path).exists()
    ]
    assert dead == []


def test_the_code_that_builds_the_site_is_not_part_of_it(site: Path):
    published = [path.relative_to(site) for path in site.rglob("*.py*")]
    assert [path for path in published if path.parts[0] != "files"] == []


def test_the_search_finds_a_page(address: str, eyes: Eyes):
    page = eyes.open(f"{address}/index.html")
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("ScriptedModel")
    found = page.locator(".md-search-result__item a").first
    expect(found).to_be_visible()
    found.click()
    expect(page.locator("article")).to_contain_text("ScriptedModel")


def test_the_switch_makes_the_page_dark_and_it_stays_dark(address: str, eyes: Eyes):
    page = eyes.open(f"{address}/index.html", color_scheme="light")
    body = page.locator("body")
    expect(body).to_have_attribute("data-md-color-scheme", "default")
    page.get_by_title("Switch to dark mode").click()
    expect(body).to_have_attribute("data-md-color-scheme", "slate")
    eyes.picture(page, "documentation_dark")
    page.goto(f"{address}/concepts.html")
    expect(body).to_have_attribute("data-md-color-scheme", "slate")


def test_no_page_scrolls_sideways_on_a_phone(site: Path, address: str, eyes: Eyes):
    eyes.picture(eyes.open(f"{address}/index.html", wide=False), "documentation_phone")
    # Without scripts it takes a tenth of the time, and the widths are the same.
    page = eyes.open(f"{address}/index.html", wide=False, java_script_enabled=False)
    for file in sorted(site.rglob("*.html")):
        name = file.relative_to(site).as_posix()
        if not name.startswith(("files/", "decisions/0")):
            page.goto(f"{address}/{name}")
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= 390, name
