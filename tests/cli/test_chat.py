"""``treefold chat``, as a person uses it: in a terminal, with a server that speaks the protocol."""

import asyncio
import json
import os
import stat
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import warm_python
from terminal import CTRL_C, CTRL_D, PATIENCE, UP, Terminal
from wire import ModelServer, Stall, Wait
from wire.openai_wire import calls, completion, error, text

Chat = Callable[..., Terminal]

TOOLS = '''
import asyncio
import time
from contextlib import suppress
from treefold import RunContext, tool

@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@tool
async def fail(why: str) -> None:
    """Fail."""
    raise ValueError(why)

@tool
async def paint(ctx: RunContext, what: str) -> str:
    """Paint something."""
    colour = await ctx.ask(f"Which colour\\x1b[2J for the {what}?", ["red", "blue"])
    return f"{what} is {colour}"

@tool
async def resist() -> None:
    """Do not end."""
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

@tool("nap", "Sleep", {})
def nap(args):
    time.sleep(60)
'''


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"TREEFOLD_HOME": str(tmp_path / "home")}


@pytest.fixture
def chat(server: ModelServer, env: dict[str, str]) -> Chat:
    def start(*options: str, columns: int = 100) -> Terminal:
        model = ["--model", "qwen3", "--base-url", server.url]
        args = ["-m", "treefold", "chat", *model, *options]
        return Terminal(*args, env=env, columns=columns)

    return start


@pytest.fixture
def tools(tmp_path: Path) -> str:
    path = tmp_path / "tools.py"
    path.write_text(TOOLS)
    return str(path)


async def piped(
    *options: str, said: str, env: dict[str, str], cwd: Path | None = None
) -> tuple[int, str, str]:
    args = ["-m", "treefold", "chat", *options]
    done = await asyncio.to_thread(warm_python.run, *args, said=said, env=os.environ | env, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def messages(server: ModelServer, request: int = -1) -> list[tuple[str, Any]]:
    """Who said what in a request, without the system prompt."""
    sent = server.requests[request].json["messages"]
    assert sent[0]["role"] == "system"
    return [(message["role"], message.get("content")) for message in sent[1:]]


async def test_the_answer_is_shown_while_it_comes(server: ModelServer, chat: Chat):
    rest = asyncio.Event()
    server.add(text("Good ", Wait(rest), "morning."), text("Bye."))
    async with chat("--system", "Be brief.") as terminal:
        await terminal.see(f"talking to qwen3 at {server.url} (--model and --base-url)")
        await terminal.see("> ")
        terminal.press("Hello\n")
        await terminal.see("\nGood ")
        rest.set()
        await terminal.see("morning.\n> ")
        terminal.press("Bye\n")
        await terminal.see("\nBye.\n> ")
        terminal.press(CTRL_D)
        assert await terminal.exit_code() == 0
    assert server.requests[0].json["messages"][0] == {"role": "system", "content": "Be brief."}
    assert messages(server) == [
        ("user", "Hello"),
        ("assistant", "Good morning."),
        ("user", "Bye"),
    ]


async def test_an_interrupt_ends_the_answer_and_not_the_chat(server: ModelServer, chat: Chat):
    server.add(text("Once upon a ", Stall()), text("Sorry."), text("Again."))
    async with chat() as terminal:
        await terminal.see("> ")
        terminal.press("Tell me a story\n")
        await terminal.see("Once upon a ")
        terminal.press(CTRL_C)
        await terminal.see("(interrupted)\n> ")
        async with asyncio.timeout(PATIENCE):
            await server.disconnected.wait()
        terminal.press("Shorter\n")
        await terminal.see("Sorry.\n> ")
        terminal.press("/quit\n")
        assert await terminal.exit_code() == 0
    assert messages(server) == [
        ("user", "Tell me a story"),
        ("assistant", "Once upon a "),
        ("user", "Shorter"),
    ]


async def test_an_interrupt_before_the_first_word_takes_the_prompt_back(
    server: ModelServer, chat: Chat
):
    server.add(text(Stall()), text("Hello."))
    async with chat() as terminal:
        await terminal.see("> ")
        terminal.press("never mind\n")
        async with asyncio.timeout(PATIENCE):
            await server.arrived.wait()
        terminal.press(CTRL_C)
        await terminal.see("(interrupted)\n> ")
        terminal.press("Hi\n")
        await terminal.see("Hello.\n> ")
    assert messages(server) == [("user", "Hi")]


async def test_an_interrupt_at_the_prompt_says_how_to_end(server: ModelServer, chat: Chat):
    server.add(text("Fine."))
    async with chat() as terminal:
        await terminal.see("> ")
        await terminal.press_until(CTRL_C, "(Ctrl-D or /quit ends the chat)\n> ")
        terminal.press("half a li")
        await terminal.see("half a li")
        await terminal.press_until(CTRL_C, "(Ctrl-D or /quit ends the chat)\n> ")
        terminal.press("How are you?\n")
        await terminal.see("Fine.\n> ")
        terminal.press("/quit\n")
        assert await terminal.exit_code() == 0
    assert messages(server) == [("user", "How are you?")]


async def test_a_second_interrupt_ends_what_will_not_be_interrupted(
    server: ModelServer, chat: Chat, tools: str
):
    server.add(calls([("1", "resist", "{}")]))
    async with chat("--tools", tools) as terminal:
        await terminal.see("> ")
        terminal.press("Resist\n")
        await terminal.see("· resist()")
        terminal.press(CTRL_C)
        await terminal.see("(interrupted)")
        terminal.press(CTRL_C)
        assert await terminal.exit_code() == 130


async def test_a_function_in_a_thread_does_not_hold_up_an_interrupt_or_the_end(
    server: ModelServer, chat: Chat, tools: str
):
    server.add(calls([("1", "nap", "{}")]), text("Good morning."))
    async with chat("--tools", tools) as terminal:
        await terminal.see("> ")
        terminal.press("Sleep\n")
        await terminal.see("· nap()")
        terminal.press(CTRL_C)
        await terminal.see("(interrupted)\n> ")
        terminal.press("Wake up\n")
        await terminal.see("Good morning.\n> ")
        terminal.press(CTRL_D)
        assert await terminal.exit_code() == 0


async def test_calls_are_a_line_each_with_what_came_of_them(
    server: ModelServer, chat: Chat, tools: str
):
    long = json.dumps({"why": "because " * 50})
    server.add(
        calls([("1", "add", '{"a": 25, "b": 17}')], ["Let me ", "see."]),
        calls([("2", "add", '{"a": 1, "b": "x"}'), ("3", "fail", long)]),
        calls([("4", "subtract", "{}"), ("5", "add", "{not json")]),
        text("It is 42."),
    )
    async with chat("--tools", tools, columns=80) as terminal:
        await terminal.see("> ")
        terminal.press("25 + 17?\n")
        await terminal.see("It is 42.\n> ")
        shown = terminal.shown.partition("25 + 17?\n")[2].splitlines()
        assert shown[0] == "Let me see."
        assert shown[1] == "· add(a=25, b=17) → 42"
        assert shown[2].startswith("· add(a=1, b='x') ✗ ")
        assert shown[3].startswith("· fail(why='because because")
        assert "✗ because" in shown[3]
        assert all(len(line) < 80 for line in shown)
        # A call that cannot be read is told at once, before the others are made.
        assert shown[4].startswith("· ✗ ")
        assert shown[5].startswith("· subtract() ✗ Tool 'subtract' not found")
        assert shown[6:] == ["It is 42.", "> "]


async def test_answers_wrap_at_words_also_after_the_window_was_resized(
    server: ModelServer, chat: Chat, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")  # as some shells do
    rest = asyncio.Event()
    words = ["Squirrels bury thou", "sands of nuts in aut", "umn, 日本語", Wait(rest)]
    server.add(text(*words, " and they forget where."))
    async with chat(columns=30) as terminal:
        await terminal.see("> ")
        terminal.press("Tell me\n")
        await terminal.see_on_screen("Squirrels bury thousands of\nnuts in autumn, 日本語")
        terminal.resize(40, 40)
        rest.set()
        await terminal.see("> ")
        terminal.press(CTRL_D)
        assert await terminal.exit_code() == 0
        assert "日本語 and they forget \nwhere.\n" in terminal.shown


async def test_thinking_is_dim_and_apart(server: ModelServer, chat: Chat):
    server.add(completion({"reasoning_content": "They greet"}, {"content": "Hello."}))
    async with chat() as terminal:
        await terminal.see("> ")
        terminal.press("Hi\n")
        await terminal.see("Hello.\n> ")
        assert "\x1b[2mThey greet\x1b[22m\r\nHello.\r\n" in terminal.raw


async def test_nothing_that_is_said_can_move_the_cursor(
    server: ModelServer, chat: Chat, tools: str
):
    evil = "\x1b[2J\x1b]0;title\x07\x9b31m\r\x08\u202e\u2028"
    server.add(
        completion({"reasoning_content": f"think{evil}"}, {"content": f"line one\n\tand{evil}"}),
        calls([("1", "fail", json.dumps({"why": f"why{evil}"})), ("2", "add", f"{{{evil}")]),
        text("Done."),
        error("invalid_request"),
    )
    server.on_request = lambda request: (
        error("no_model", message=f"who{evil}") if len(server.requests) == 4 else None
    )
    async with chat("--tools", tools, columns=300) as terminal:
        await terminal.see("> ")
        terminal.press("one\n")
        await terminal.see(
            "line one\n\tand\\x1b[2J\\x1b]0;title\\x07\\x9b31m\\r\\x08\\u202e\\u2028\n"
        )
        terminal.press("two\n")
        await terminal.see("Done.")
        terminal.press("three\n")
        await terminal.see("who\\x1b[2J")
        terminal.press("/history\n")
        await terminal.see("Model: Done.")
        readline_only = {"[?2004h", "[?2004l", "[2m", "[22m"}
        for sequence in terminal.raw.split("\x1b")[1:]:
            assert any(sequence.startswith(known) for known in readline_only), sequence
        for char in "\x07\x9b\x08\u202e\u2028":
            assert char not in terminal.raw


async def test_what_a_tool_asks_is_put_to_the_user(server: ModelServer, chat: Chat, tools: str):
    server.add(calls([("1", "paint", '{"what": "door"}')]), text("Painted."))
    async with chat("--tools", tools) as terminal:
        await terminal.see("> ")
        terminal.press("Paint the door\n")
        await terminal.see("Which colour\\x1b[2J for the door? [red / blue]\n? ")
        terminal.press("green\n")
        await terminal.see("'green' does not answer the question")
        await terminal.see("\n? ")
        terminal.press("blue\n")
        await terminal.see("blue\n· paint → door is blue\nPainted.\n> ")
    assert messages(server)[-1] == ("tool", "door is blue")


async def test_an_interrupt_at_a_question_ends_the_turn(
    server: ModelServer, chat: Chat, tools: str
):
    server.add(calls([("1", "paint", '{"what": "door"}')]), text("Then not."))
    async with chat("--tools", tools) as terminal:
        await terminal.see("> ")
        terminal.press("Paint the door\n")
        await terminal.see("[red / blue]\n? ")  # what comes before that is forgotten
        terminal.press(CTRL_C)
        await terminal.see("(interrupted)\n> ")
        terminal.press("Leave it\n")
        await terminal.see("Then not.\n> ")
    assert [role for role, _ in messages(server)] == ["user", "assistant", "tool", "user"]


async def test_what_was_typed_before_a_question_does_not_answer_it(
    server: ModelServer, chat: Chat, tools: str
):
    go = asyncio.Event()
    server.add(
        calls([("1", "paint", '{"what": "door"}')], ["Wait ", Wait(go), "a bit."]),
        text("Painted."),
    )
    async with chat("--tools", tools) as terminal:
        await terminal.see("> ")
        terminal.press("Paint the door\n")
        await terminal.see("Wait ")
        terminal.press("red\n")
        await terminal.see("red\n")  # the terminal echoes it
        go.set()
        await terminal.see("[red / blue]\n? ")
        terminal.press("blue\n")
        await terminal.see("Painted.\n> ")
    assert messages(server)[-1] == ("tool", "door is blue")


async def test_a_failing_provider_is_a_sentence_and_the_chat_continues(
    server: ModelServer, chat: Chat
):
    server.add(error("no_model"), text("Here I am."))
    async with chat() as terminal:
        await terminal.see("> ")
        terminal.press("Hello?\n")
        await terminal.see("does not exist or you do not have access to it")
        await terminal.see("\n> ")
        terminal.press("Hello!\n")
        await terminal.see("Here I am.\n> ")
        assert "Traceback" not in terminal.shown
    assert messages(server) == [("user", "Hello!")]


async def test_the_commands_do_what_the_help_says(server: ModelServer, chat: Chat, tmp_path: Path):
    saved = tmp_path / "talk.md"
    kept = tmp_path / "talk.json"
    server.add(text("One."), text("Two."), text("Zwei."), text("Three."), text("Four."))
    async with chat() as terminal:
        await terminal.see("> ")
        for line, told in [
            ("/help", "/quit            end, as Ctrl-D does"),
            ("/retry", "there is no prompt yet"),
            ("/model", f"qwen3 at {server.url}"),
            ("Count", "One."),
            ("/usr/bin is a path", "Two."),
            ("/history", "You: Count\nModel: One.\nYou: /usr/bin is a path\nModel: Two.\n"),
            ("/tokens", "so far 22 were read and 14 written"),
            (f"/save {saved}", f"saved as {saved}"),
            (f"/save {saved}", f"{saved} already exists; '/save! {saved}' overwrites it"),
            (f"/save! {saved}", f"saved as {saved}"),
            (f"/save {kept}", f"saved as {kept}"),
            ("/save talk.txt", "talk.txt: a conversation is saved as .json or .md"),
            (f"/save {tmp_path}/no/such.md", "No such file or directory"),
            ("/retry", "Zwei."),
            ("/clear", "the model has forgotten everything"),
            ("//help is a word", "Three."),
            (f"/load {saved}", "is not a conversation that /save wrote as .json"),
            ("/load nowhere.json", "nowhere.json: No such file or directory"),
            (f"/load {kept}", "loaded 4 messages; the next prompt follows them"),
            ("/hlep", "there is no command /hlep; did you mean '/help'?"),
            ("Go on", "Four."),
        ]:
            terminal.press(f"{line}\n")
            await terminal.see(told)
            await terminal.see("> ")
        terminal.press("/quit\n")
        assert await terminal.exit_code() == 0
    before = [("user", "Count"), ("assistant", "One."), ("user", "/usr/bin is a path")]
    assert messages(server, 2) == before
    assert messages(server, 3) == [("user", "/help is a word")]
    assert messages(server, 4) == [*before, ("assistant", "Two."), ("user", "Go on")]
    assert saved.read_text() == (
        f"# Conversation with qwen3 at {server.url}\n\n"
        "**You**\n\nCount\n\n**Model**\n\nOne.\n\n"
        "**You**\n\n/usr/bin is a path\n\n**Model**\n\nTwo.\n"
    )


async def test_a_line_that_ends_in_a_backslash_continues(server: ModelServer, chat: Chat):
    server.add(text("I see."))
    async with chat() as terminal:
        await terminal.see("> ")
        terminal.press("one\\\n")
        await terminal.see("... ")
        terminal.press("two\n")
        await terminal.see("I see.\n> ")
    assert messages(server) == [("user", "one\ntwo")]


async def test_what_was_typed_can_be_called_back_but_for_secrets(
    server: ModelServer, chat: Chat, env: dict[str, str]
):
    server.add(*[text("Yes.")] * 7)
    async with chat() as terminal:
        await terminal.see("> ")
        for line in ["first", " with a space", "my password is hunter2", "key sk-abcdef123456789"]:
            terminal.press(f"{line}\n")
            await terminal.see("Yes.\n> ")
        terminal.press(f"{UP}\n")
        await terminal.see("Yes.\n> ")
        terminal.press(CTRL_D)
        assert await terminal.exit_code() == 0
    assert messages(server)[-1] == ("user", "first")
    kept = Path(env["TREEFOLD_HOME"]) / "chat_history"
    assert kept.read_text() == "first\nfirst\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    async with chat() as terminal:
        await terminal.see("> ")
        terminal.press(f"{UP}\n")
        await terminal.see("Yes.\n> ")
    assert messages(server) == [("user", "first")]


async def test_a_session_resumes_where_it_ended(server: ModelServer, chat: Chat, tmp_path: Path):
    server.add(text("In Rome."), text("By train."))
    session = ("--session", "trip", "--store", str(tmp_path / "chats.db"))
    async with chat(*session) as terminal:
        await terminal.see("> ")
        terminal.press("Where to?\n")
        await terminal.see("In Rome.\n> ")
        terminal.press(CTRL_D)
        assert await terminal.exit_code() == 0
    async with chat(*session) as terminal:
        await terminal.see("resuming after 2 messages; /history shows them\n> ")
        terminal.press("How?\n")
        await terminal.see("By train.\n> ")
        terminal.press(CTRL_D)
        assert await terminal.exit_code() == 0
    assert messages(server) == [
        ("user", "Where to?"),
        ("assistant", "In Rome."),
        ("user", "How?"),
    ]


async def test_what_was_forgotten_is_not_there_next_time(server: ModelServer, env: dict[str, str]):
    server.add(text("In Rome."), text("Who knows?"))
    options = ("--model", "qwen3", "--base-url", server.url, "--session", "trip")
    await piped(*options, said="Where to?\n/clear\n", env=env)
    code, out, err = await piped(*options, said="Where was it?\n", env=env)
    assert (code, out, "going on" in err) == (0, "Who knows?\n", False)
    assert messages(server) == [("user", "Where was it?")]


async def test_two_chats_on_one_session_are_warned_and_both_continue(
    server: ModelServer, chat: Chat, tmp_path: Path
):
    server.add(text("In Rome."), text("By train."), text("Soon."))
    session = ("--session", "trip", "--store", str(tmp_path / "chats.db"))
    async with chat(*session) as one, chat(*session) as other:
        await one.see("> ")
        await other.see("> ")
        one.press("Where to?\n")
        await one.see("In Rome.\n> ")
        other.press("How?\n")
        await other.see("By train.\n")
        await other.see("somebody else went on with the session 'trip'; open it again, or fork it")
        await other.see("\n> ")
        assert "OpenAIModel" not in other.shown
        other.press(CTRL_D)
        assert await other.exit_code() == 1
        one.press("When?\n")
        await one.see("Soon.\n> ")
        one.press(CTRL_D)
        assert await one.exit_code() == 0


async def test_from_a_pipe_each_line_is_a_prompt_and_only_answers_are_on_stdout(
    server: ModelServer, env: dict[str, str], tools: str
):
    server.add(
        completion({"reasoning_content": "Hm."}, {"content": "One."}),
        calls([("1", "add", '{"a": 1, "b": 1}')], ["Let me see."]),
        text("Two.\n"),
    )
    options = ("--model", "qwen3", "--base-url", server.url, "--tools", f"{tools}:add")
    code, out, err = await piped(*options, said="first\n\nsecond\\\nline", env=env)
    assert (code, out) == (0, "One.\nLet me see.\nTwo.\n")
    assert err == (
        f"talking to qwen3 at {server.url} (--model and --base-url); /help lists the commands"
        "\n· add(a=1, b=1) → 2\n"
    )
    assert messages(server)[2] == ("user", "second\nline")
    assert not (Path(env["TREEFOLD_HOME"]) / "chat_history").exists()


async def test_from_a_pipe_a_prompt_without_answer_is_exit_code_1(
    server: ModelServer, env: dict[str, str]
):
    server.add(error("no_model"), text("Yes."))
    options = ("--model", "qwen3", "--base-url", server.url)
    code, out, err = await piped(*options, said="first\nsecond\n", env=env)
    assert (code, out) == (1, "Yes.\n")
    assert "does not exist" in err
    assert "Traceback" not in err


async def test_a_reader_that_goes_away_ends_the_chat_without_a_word(
    server: ModelServer, env: dict[str, str]
):
    server.add(*[text("Yes.")] * 3)
    read, write = os.pipe()
    os.close(read)
    process = await asyncio.create_subprocess_exec(
        *warm_python.command("-m", "treefold", "chat", "--model", "qwen3"),
        "--base-url", server.url,
        env=os.environ | env, stdin=PIPE, stdout=write, stderr=PIPE,
    )  # fmt: skip
    os.close(write)
    async with asyncio.timeout(60):
        _, err = await process.communicate(b"one\ntwo\nthree\n")
    assert process.returncode == 1
    assert err.decode().count("\n") == 1  # who it talks to
    assert len(server.requests) == 1


async def test_questions_are_answered_from_the_pipe_or_not_at_all(
    server: ModelServer, env: dict[str, str], tools: str
):
    asked = calls([("1", "paint", '{"what": "door"}')])
    server.add(asked, text("Painted."), asked)
    options = ("--model", "qwen3", "--base-url", server.url, "--tools", tools)
    code, out, err = await piped(*options, said="Paint it\nred\nPaint it again", env=env)
    assert (code, out) == (1, "Painted.\n")
    assert "(the input has ended: nobody can answer)" in err


async def test_wrong_use_is_exit_code_2_and_a_sentence(tmp_path: Path, env: dict[str, str]):
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "chats.db").write_text("no database" * 100)
    for options, words in [
        (["--local", "--model", "x"], "--local names the model"),
        (["--model", "clod:x"], "no provider is called 'clod'"),
        (["--base-url", "http://127.0.0.1:9/v1"], "does not list its models: give --model"),
        (["--local", "--tools", "empty.py"], "empty.py has no public functions"),
        (["--local", "--tools", "empty.py:f"], "empty.py has no function 'f'; it has none"),
        (["--local", "--tools", "nowhere.py"], "there is no file nowhere.py"),
        (["--local", "--store", "chats.db"], "give --session, too"),
        (["--local", "--store", "chats.db", "--session", "a"], "it is not a database"),
        (["--local", "--session", "a\nb"], "must be a name of printable characters"),
    ]:
        code, out, err = await piped(*options, said="Hello\n", env=env, cwd=tmp_path)
        assert (code, out, words in err) == (2, "", True), (options, err)
        assert "Traceback" not in err


async def test_the_example_of_the_help_runs_on_the_embedded_model(
    smollm2: Path, env: dict[str, str]
):
    code, shown, _ = await piped("--help", said="", env=env)
    (example,) = [line for line in shown.splitlines() if line.startswith("example: treefold chat")]
    options = example.removeprefix("example: treefold chat").split()
    assert (code, options) == (0, ["--local"])
    code, out, err = await piped(
        *options, "--max-tokens", "24", "--temperature", "0",
        said="What is the capital of France?\n", env=env,
    )  # fmt: skip
    assert code == 0, err
    assert "Paris" in out
    assert err.startswith("talking to local (--local)")
