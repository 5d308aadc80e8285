"""What the guides show is executed, each block in an empty folder, and prints what they say."""

import io
import logging
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
GUIDES = sorted(DOCS.glob("*.md"))
BLOCKS = [
    pytest.param(guide.name, *found.groups(), id=f"{guide.stem}-{number}")
    for guide in GUIDES
    for number, found in enumerate(BLOCK.finditer(guide.read_text("utf-8")), 1)
]


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    log = logging.getLogger("treefold")
    level = log.level
    yield
    log.setLevel(level)


@pytest.mark.parametrize(("guide", "code", "printed"), BLOCKS)
def test_every_block_runs_and_prints_what_stands_below_it(
    guide: str,
    code: str,
    printed: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "guide"}
    with redirect_stdout(io.StringIO()) as said:
        exec(compile(code, guide, "exec"), namespace)
    if printed is not None:
        assert said.getvalue() == printed


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_every_link_leads_somewhere(guide: Path):
    text = guide.read_text("utf-8")
    for path, heading in LINK.findall(text):
        target = guide if not path else guide.parent / path
        assert target.exists(), path
        if heading:
            titles = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
            assert heading in slugs
