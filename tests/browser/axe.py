"""Checks what a page offers to assistive technology, with axe-core in the page itself."""

from importlib.resources import files
from typing import Any, Final

from playwright.sync_api import Page

_SCRIPT: Final = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
_RUN: Final = """async (rules) => {
  const options = { resultTypes: ['violations'], ...(rules.length && { runOnly: rules }) };
  const { violations } = await axe.run(document, options);
  return violations.flatMap(({ id, help, nodes }) => nodes.map(
    (node) => ({ id, help, where: node.html.slice(0, 300), why: node.failureSummary }),
  ));
}"""


def violations(page: Page, *rules: str) -> list[dict[str, Any]]:
    """Return what is wrong with a page, for each element, by *rules* or all that axe-core has."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_SCRIPT)
    return page.evaluate(_RUN, rules)
