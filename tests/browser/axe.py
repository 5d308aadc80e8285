"""Checks what a page offers to assistive technology, with axe-core in the page itself."""

from importlib.resources import files
from typing import Any, Final

from playwright.sync_api import Page

_SCRIPT: Final = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
_RUN: Final = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ['violations'] });
  return violations.flatMap(({ id, help, nodes }) => nodes.map(
    (node) => ({ id, help, where: node.html.slice(0, 300), why: node.failureSummary }),
  ));
}"""


def violations(page: Page) -> list[dict[str, Any]]:
    """Return what is wrong with a page, for each element; all rules of axe-core apply."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_SCRIPT)
    return page.evaluate(_RUN)
