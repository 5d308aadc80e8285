"""What is to be redacted is in no file, however it is written."""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from treefold import RunContext, Runtime, tool
from treefold.core.errors import InvalidValueError

PATIENCE: Final = 60  # seconds

LINES: Final = "-----BEGIN\nzyxwvu\n-----END\n"


def written(folder: Path) -> bytes:
    """Return all that is in the files of *folder*."""
    return b"".join(file.read_bytes() for file in folder.iterdir())


def keep(text: Any, redact: Callable[[str], str], folder: Path) -> bytes:
    """Return what is in the files of a journal after a call that gave *text*."""

    @tool
    async def show() -> Any:
        return text

    with Runtime([show], store=folder / "run.db", redact=redact) as runtime:
        assert runtime.invoke(show).result(PATIENCE) == text
    return written(folder)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_a_number_in_json_is_redacted(tmp_path: Path, separators: tuple[str, str]) -> None:
    text = json.dumps({"card": 4111111111111111, "of": "Ada"}, separators=separators)
    found = keep(text, lambda text: re.sub(r"\d{16}", "[card]", text), tmp_path)
    assert (b"4111111111111111" in found, b"[card]" in found) == (False, True)


def test_a_text_that_is_known_by_what_stands_around_it_in_json_is_redacted(tmp_path: Path) -> None:
    text = json.dumps({"password": "hunter2"})
    found = keep(
        text, lambda text: re.sub(r'("password": ")[^"]*', r"\1[password]", text), tmp_path
    )
    assert (b"hunter2" in found, b"[password]" in found) == (False, True)


@pytest.mark.parametrize(
    "text",
    [json.dumps({"key": LINES}, indent=2), f"key={json.dumps(LINES)}"],
    ids=["in JSON with indents", "in other text"],
)
def test_a_text_of_several_lines_is_redacted_where_json_quotes_it(
    tmp_path: Path, text: str
) -> None:
    found = keep(text, lambda text: text.replace(LINES, "[key]"), tmp_path)
    assert (b"zyxwvu" in found, b"[key]" in found) == (False, True)


@pytest.mark.parametrize("value", [4111111111111111, {4111111111111111: [0.5]}, {"n": (0.5,)}])
def test_a_number_is_redacted(tmp_path: Path, value: Any) -> None:
    found = keep(value, lambda text: re.sub(r"\d{16}|0\.5", "[number]", text), tmp_path)
    assert (b"4111111111111111" in found, b"0.5" in found, b"[number]" in found) == (
        False,
        False,
        True,
    )


@dataclass
class Secret:
    data: bytes


@pytest.mark.parametrize("around", [b"", b"\xff", b'{"a": "\\u00e4'])
def test_text_in_bytes_is_redacted(tmp_path: Path, around: bytes) -> None:
    bare = around + b"s3cret"
    value = [bare, bytearray(bare), Secret(bare)]
    found = keep(value, lambda text: text.replace("s3cret", "[k]"), tmp_path)
    hidden = [b64encode(around + b"[k]"), b"s3cret", b64encode(bare)]
    assert [one in found for one in hidden] == [True, False, False]


def test_a_key_with_something_to_be_redacted_is_refused(tmp_path: Path) -> None:
    made = list[str]()

    @tool
    async def pay() -> None:
        made.append("pay")

    @tool(uses=[pay])
    async def top(ctx: RunContext) -> None:
        made.append("top")
        await ctx.invoke(pay, key="for s3cret")

    def redact(text: str) -> str:
        return text.replace("s3cret", "[secret]")

    with Runtime([top], store=tmp_path / "run.db", redact=redact) as runtime:
        for key in "s3cret", None:
            with pytest.raises(InvalidValueError, match="something in this one .* to be redacted"):
                runtime.invoke(top, key=key).result(PATIENCE)
    assert made == ["top"]
    assert b"s3cret" not in written(tmp_path)
