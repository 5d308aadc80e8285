"""What the site has beyond its pages: the API, files of the project, and its pages for programs.

MkDocs calls these functions by their names while it builds the site.
"""

import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ELSEWHERE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)]*)?\))")
API = re.compile(r"^<!-- api: (\S+) -->$", re.MULTILINE)
ENTRY = re.compile(r"^::: (\S+)\n {4}options:\n {6}.*$", re.MULTILINE)
INCLUDED = re.compile(r'^ *--8<-- "(.*)"$', re.MULTILINE)
TREE = re.compile(r"^<!-- tree: (\S+) -->$", re.MULTILINE)
GROUP = re.compile(r"^(\S.*):\n((?: {4}.*\n)+)", re.MULTILINE)
DIAGRAM = re.compile(r'<img alt="[^"]*" src="[^"]*assets/(?P<name>\w+\.svg)" />')
STYLE = re.compile(r"<style>.*?</style>\n", re.DOTALL)

_sections: list[tuple[str, list[Page]]] = []
_written: list[Page] = []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are files of the project, outside of docs/."""
    for source, page in ELSEWHERE.items():
        text = LINK.sub(_from_root, (ROOT / source).read_text("utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def _from_root(link: re.Match[str]) -> str:
    before, target, after = link.groups()
    inside = target.startswith("docs/")
    return before + (target.removeprefix("docs/") if inside else f"../{target}") + after


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Remember the pages, and their order for llms.txt; some are not in the menu."""
    _written[:] = [file.page for file in files.documentation_pages() if file.page]
    _sections.clear()
    pages = [item for item in nav.items if isinstance(item, Page)]
    sections = [item for item in nav.items if isinstance(item, Section)]
    _sections.append((config.site_name, pages))
    _sections.extend((section.title, list(_pages(section))) for section in sections)
    return nav


def _pages(section: Section) -> Iterator[Page]:
    for item in section.children:
        if isinstance(item, Section):
            yield from _pages(item)
        elif isinstance(item, Page):
            yield item


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """List the names of a module, and let links lead to files of the project."""
    folder = os.path.dirname(page.file.src_uri)

    def within(link: re.Match[str]) -> str:
        before, target, after = link.groups()
        path = os.path.normpath(os.path.join("docs", folder, target))
        if path.startswith("docs") or not (ROOT / path).is_file():
            return link[0]
        there = ELSEWHERE.get(path, f"files/{path}")
        if there not in files.src_uris:
            files.append(File.generated(config, there, abs_src_path=str(ROOT / path)))
        return before + os.path.relpath(there, folder or ".") + after

    markdown = LINK.sub(within, TREE.sub(_tree, markdown))
    return API.sub(lambda found: _api(found[1]), markdown)


def _tree(found: re.Match[str]) -> str:
    """Return the tree that the docstring of a module draws."""
    paragraphs = str(importlib.import_module(found[1]).__doc__).split("\n\n")
    [tree] = [one for one in paragraphs if "├──" in one]
    return f"```console\n{tree.strip()}\n```"


def _api(name: str) -> str:
    """Return the names of the module *name*, in the order of its docstring, for mkdocstrings."""
    module = importlib.import_module(name)
    rest = [found for found in dir(module) if found in set(module.__all__)]
    text = ""
    for title, about in GROUP.findall(f"{module.__doc__}\n"):
        named = [word for word in dict.fromkeys(re.findall(r"\w+", about)) if word in rest]
        rest = [found for found in rest if found not in named]
        text += _group(module, title, named) if named else ""
    order = re.findall(r"\w+", str(module.__doc__))
    rest.sort(key=lambda found: (order.index(found) if found in order else len(order), found))
    return text + (_group(module, "More" if text else "Names", rest) if rest else "")


def _group(module: ModuleType, title: str, names: list[str]) -> str:
    options = "\n    options:\n      heading_level: 3"
    entries = [f"::: {module.__name__}.{name}{options}" for name in names]
    return "\n\n".join([f"## {title}", *entries]) + "\n\n"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put diagrams into the page itself, where the switch for dark mode reaches them."""

    def inline(found: re.Match[str]) -> str:
        name = found["name"]
        drawing = STYLE.sub("", (ROOT / "docs" / "assets" / name).read_text("utf-8"))
        # A page may have several, each with an arrow head of its own.
        drawing = drawing.replace('id="to"', f'id="to-{name}"').replace("#to)", f"#to-{name})")
        return f'<div class="diagram-frame">{drawing}</div>'

    return DIAGRAM.sub(inline, html)


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt, and each page as Markdown beside its HTML."""
    for page in _written:
        text = _as_text(page.markdown or "")
        Path(config.site_dir, _text_uri(page)).write_text(text, "utf-8")
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for title, pages in _sections:
        lines += [f"## {title}", ""]
        lines += [f"- [{page.title}]({_text_uri(page)})" for page in pages]
        lines.append("")
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines), "utf-8")


def _text_uri(page: Page) -> str:
    return page.file.dest_uri.removesuffix(".html") + ".md"


def _as_text(markdown: str) -> str:
    """Return a page with the docstrings and files that it refers to."""
    markdown = ENTRY.sub(lambda found: _described(*found[1].rsplit(".", 1)), markdown)
    return INCLUDED.sub(lambda found: (ROOT / found[1]).read_text("utf-8"), markdown)


def _described(module: str, name: str) -> str:
    about = getattr(importlib.import_module(module), name).__doc__
    return f"### {name}\n\n{inspect.cleandoc(about or '')}"
