"""Arguments that stand in files."""

from pathlib import Path

from agent_scripts import run
from treefold import CodeFunction, FromFile, RunContext


async def test_the_mark_that_some_editors_begin_a_file_with_is_no_part_of_it(tmp_path: Path):
    def read(ctx: RunContext, text: str) -> str:
        return text

    file = tmp_path / "note.txt"
    file.write_text("Boom", encoding="utf-8-sig")
    node = await run(CodeFunction(callable=read), {"text": FromFile(file)})
    assert node.outputs == "Boom"
