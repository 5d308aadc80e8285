"""``treefold run --model auto``: which model a run uses if none is named."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from terminal import Terminal
from treefold.cli.model_choice import ModelChoice, find_choices
from treefold.models.local.catalogue import QWEN_CODER_15B
from wire import ModelServer, openai_wire
from wire.replies import failure

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
NOBODY = {"nobody": "http://127.0.0.1:9/v1"}
OFFER = (
    "from treefold.cli.model_choice import ask_for_model; print('took', ask_for_model(None, {}))"
)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of local models; there are no keys, either."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TREEFOLD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "models").mkdir(parents=True)
    return tmp_path / "cache" / "models"


async def test_keys_and_servers_are_found_and_no_key_is_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "secret")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    async with ModelServer() as server:
        listed = {"data": [{"id": "nomic-embed-text"}, {"id": "qwen3"}]}
        server.on_request = lambda _: failure(200, listed)
        url = f"{server.url}/v1"
        assert await find_choices(NOBODY | {"ollama": url}) == [
            ModelChoice(
                "anthropic:claude-opus-5-5", None, "ANTHROPIC_API_KEY is set; this costs money"
            ),
            ModelChoice("gemini:gemini-4-argon", None, "GOOGLE_API_KEY is set; this costs money"),
            ModelChoice(f"openai:qwen3@{url}", None, "ollama is running"),
        ]


async def test_a_local_model_that_was_fetched_is_offered(cache: Path):
    with open(cache / QWEN_CODER_15B.file, "wb") as file:  # noqa: ASYNC230 - it is empty
        file.truncate(QWEN_CODER_15B.size)
    assert await find_choices(NOBODY) == [
        ModelChoice("local:qwen2.5-coder-1.5b", None, f"embedded: {QWEN_CODER_15B.about}")
    ]


async def test_the_user_chooses_by_number():
    env = {"ANTHROPIC_API_KEY": "secret", "OPENAI_API_KEY": "secret"}
    async with Terminal("-c", OFFER.format(30), env=env) as terminal:
        await terminal.see("    1  local  (embedded: needs no key and no server; it is small)\n")
        await terminal.see("    2  anthropic:claude-opus-5-5  (ANTHROPIC_API_KEY is set; this")
        await terminal.see("    3  openai:gpt-6.1-sol  (OPENAI_API_KEY is set; this costs money)\n")
        await terminal.see("which one? [1, also after 30 s] ")
        terminal.press("nine\n")
        await terminal.see("a number from 1 to ")
        terminal.press("3\n")
        await terminal.see("took openai:gpt-6.1-sol")
        assert await terminal.exit_code() == 0
    assert "secret" not in terminal.raw


@pytest.mark.parametrize(("patience", "keys"), [(30, "\n"), (0.2, "")])
async def test_it_is_the_embedded_one_without_a_choice_in_time(patience: float, keys: str):
    async with Terminal("-c", OFFER.format(patience), env={"OPENAI_API_KEY": "x"}) as terminal:
        await terminal.see("which one? ")
        terminal.press(keys)
        await terminal.see("took local")
        assert await terminal.exit_code() == 0


async def test_without_a_terminal_the_user_is_not_asked():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OFFER.format(30),
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={**os.environ, "OPENAI_API_KEY": "x"},
    )  # fmt: skip
    async with asyncio.timeout(60):
        printed, told = await process.communicate()
    assert printed == b"took local\n"
    assert b"using the embedded model; --model takes another: openai:gpt-6.1-sol (OPENAI" in told


async def test_a_run_uses_what_was_chosen(tmp_path: Path):
    module = tmp_path / "job.py"
    module.write_text("from treefold import agent\n@agent\ndef go() -> str:\n    return 'go'\n")
    args = ["-m", "treefold", "run", f"{module}:go", "--model", "auto"]
    async with ModelServer([openai_wire.text("Gone.")]) as server:
        env = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{server.url}/v1"}
        async with Terminal(*args, env=env) as terminal:
            await terminal.see("which one? ")
            terminal.press("2\n")
            await terminal.see_on_screen("✓ 1 go() → 'Gone.'")
            assert await terminal.exit_code() == 0
    assert [request.json["model"] for request in server.requests] == ["gpt-6.1-sol"]
