"""What a runtime says on the ``treefold`` logger."""

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import until
from support import boom, double, forever, wait
from treefold import CodeFunction, MemoryStore, RunContext, Runtime, ToolUse, agent
from treefold.testing import ScriptedModel

Said = Callable[[], list[str]]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    """Return the messages so far, each with the first letter of its level and without times."""

    def read() -> list[str]:
        ours = [one for one in caplog.records if one.name.startswith("treefold.")]
        lines = [f"{one.levelname[0]} {one.getMessage()}" for one in ours]
        return [re.sub(r"\d+\.\d s", "T s", line) for line in lines]

    return read


async def ask(ctx: RunContext, text: str = "Deploy?") -> str:
    return await ctx.ask(text, ["yes", "no"])


asks = CodeFunction(callable=ask, repeatable=True)


def wait_for_question(runtime: Runtime, node: Any) -> None:
    """Wait until *node* waits for the answer to a question, without reading the questions."""
    for view in runtime.watch(node):
        if any(one.questions for one in (view, *view.children)):
            return


@agent(uses=[double], model="m")
def count(word: str) -> str:
    return f"Count {word}."


def counting() -> ScriptedModel:
    return ScriptedModel(ToolUse("1", "double", {"n": 1}), "two")


def test_nothing_is_logged_by_default_about_a_run_that_waits_for_nobody(said: Said):
    with Runtime([count], models={"m": counting()}) as runtime:
        runtime.invoke(count, {"word": "a"}).result()
    assert said() == []


def test_runs_are_logged_at_info_without_their_arguments(
    said: Said, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "treefold")
    with Runtime([count], models={"m": counting()}) as runtime:
        runtime.invoke(count, {"word": "secret"}).result()
        with pytest.raises(ZeroDivisionError):
            runtime.invoke(boom).result()
        node = runtime.invoke(forever)
        for view in runtime.watch(node):
            if view.started_at is not None:
                node.cancel("enough")
    count_ended, *rest = said()[1:]
    assert said()[0] == "I count (run 1) started"
    assert re.fullmatch(r"I count \(run 1\) ended: success, T s(, [\d,]+ tokens, .*)?", count_ended)
    assert rest == [
        "I boom (run 2) started",
        "I boom (run 2) ended: error, ZeroDivisionError: oops, T s",
        "I forever (run 3) started",
        "I forever (run 3) ended: canceled, CancellationException: forever (run 3) was"
        " cancelled: enough, T s",
    ]


def test_calls_and_requests_are_logged_at_debug(said: Said, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "treefold")
    model = counting()
    with Runtime([count], models={"m": model}) as runtime:
        runtime.invoke(count, {"word": "\x1b[2Jone\nline"}).result()
    lines = [line for line in said() if line.startswith("D ")]
    assert [line.partition(": ")[0] for line in lines] == [
        f"D count (run 1) sends a request to {model.name}",
        "D count (run 1) received a response",
        "D double (call 1.1) started",
        "D double (call 1.1) ended",
        f"D count (run 1) sends a request to {model.name}",
        "D count (run 1) received a response",
    ]
    assert said()[0] == r"I count (run 1) started: word='\x1b[2Jone\nline'"


def test_a_question_that_the_program_does_not_read_is_a_warning_with_the_way_to_answer(
    said: Said, tmp_path: Path
):
    path = tmp_path / "a run.db"
    expected: list[str] = []
    for store, how in (
        (None, "runtime.answer('1-1', TEXT)"),
        (MemoryStore(), "runtime.answer('1-1', TEXT)"),
        (path, f"treefold answer 1 TEXT --store '{path}'"),
    ):
        expected.append(
            "W ask (run 1) waits for a person (human):"
            f' "\\x1b[31mDeploy \\u202enow?" [yes / no]; answer with: {how}'
        )
        with Runtime([asks], store=store) as runtime:
            node = runtime.invoke(asks, {"text": "\x1b[31mDeploy\n\u202enow?"})
            wait(lambda: len(said()) == len(expected))
            runtime.answer("1-1", "yes")
            node.result()
        assert said() == expected


def test_a_question_in_run_sync_is_one_that_nobody_can_answer(said: Said):
    async def ask_in_vain(ctx: RunContext) -> None:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ctx.ask("Deploy?"))
            await until(said)
            asking.cancel()

    CodeFunction(callable=ask_in_vain, name="ask").run_sync()
    assert said() == ["W ask (run 1) asks 'Deploy?', and nobody can answer it: use it in a Runtime"]


def test_a_question_is_no_warning_once_the_program_reads_them(
    said: Said, caplog: pytest.LogCaptureFixture
):
    with Runtime([asks]) as runtime:
        assert runtime.questions() == []
        for id in ("1-1", "2-1"):
            node = runtime.invoke(asks)
            wait_for_question(runtime, node)
            runtime.answer(id, "yes")
            node.result()
            caplog.set_level(logging.INFO, "treefold")
    assert said()[1:] == [
        'I ask (run 2) waits for a person (human): "Deploy?" [yes / no]; answer with:'
        " runtime.answer('2-1', TEXT)",
        "I ask (run 2) continues: its question was answered",
        "I ask (run 2) ended: success, T s",
    ]


def test_a_question_is_no_warning_once_the_program_has_answered_one(
    said: Said, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "treefold")
    with Runtime([asks]) as runtime:
        for id in ("1-1", "2-1"):
            node = runtime.invoke(asks)
            wait_for_question(runtime, node)
            runtime.answer(id, "yes")
            node.result()
    assert [line[0] for line in said() if "waits for a person" in line] == ["I"]


def test_what_is_redacted_in_the_journal_is_redacted_in_the_log(
    said: Said, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG, "treefold")

    def redact(text: str) -> str:
        return text.replace("sk-123", "***")

    with Runtime([asks], store=MemoryStore(), redact=redact) as runtime:
        node = runtime.invoke(asks, {"text": "Use sk-123?"})
        wait_for_question(runtime, node)
        runtime.answer("1-1", "yes")
        node.result()
    assert "***" in " ".join(said())
    assert "sk-123" not in caplog.text


def test_a_failure_that_nobody_asked_for_is_logged_on_one_line_and_redacted(said: Said):
    def fail(ctx: RunContext) -> None:
        raise ValueError("the key is sk-123\n\x1b[31mW all is well")

    failing = CodeFunction(callable=fail, repeatable=True)

    def redact(text: str) -> str:
        return text.replace("sk-123", "***")

    with Runtime([failing], store=MemoryStore(), redact=redact) as runtime:
        node = runtime.invoke(failing)
        wait(lambda: node.state.final)
    assert said() == [
        "W <CodeNode 1 fail error> failed, and nobody asked for its result: ValueError: the key is"
        " *** \\x1b[31mW all is well"
    ]


def test_resumed_runs_and_those_that_wait_are_logged(
    said: Said, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    async def ask_about(ctx: RunContext) -> str:
        return await ctx.invoke(asks, {"text": str(await ctx.invoke(double, {"n": 1}))})

    asking = CodeFunction(callable=ask_about, name="asking", uses=[double, asks])
    path = tmp_path / "run.db"
    with Runtime([asking], store=path) as runtime:
        runtime.questions()
        caplog.set_level(logging.INFO, "treefold")
        node = runtime.invoke(asking)
        wait_for_question(runtime, node)
    assert said()[-1] == "I asking (run 1) stops here; the next runtime resumes it"
    caplog.clear()
    with Runtime([asking], store=path) as runtime:
        [node] = runtime.recover()
        wait(lambda: len(said()) > 1)  # as the program does not read the questions
        runtime.answer("3-1", "yes")
        node.result()
    assert said() == [
        "I asking (run 1) is resumed: 1 of 2 calls below it are done",
        'W ask (call 1.2) waits for a person (human): "2" [yes / no]; answer with:'
        f" treefold answer 1.2 TEXT --store {path}",
        "I ask (call 1.2) continues: its question was answered",
        "I asking (run 1) ended: success, T s",
    ]


def test_runs_that_wait_from_the_start_are_one_warning(said: Said, tmp_path: Path):
    path = tmp_path / "run.db"
    with Runtime([asks], store=path) as runtime:
        runtime.questions()
        for _ in range(3):
            wait_for_question(runtime, runtime.invoke(asks))
    with Runtime([asks], store=path):
        wait(said)
        assert said() == [
            f"W runs of {path} wait for a person; list the questions with: treefold questions"
            f" --store {path}"
        ]


async def test_of_many_questions_at_once_ten_are_logged_and_the_others_counted(said: Said):
    async with Runtime([asks]) as runtime:
        nodes = [runtime.invoke(asks) for _ in range(13)]
        await until(said)
        assert len(said()) == 11
        assert said()[-1] == "W 3 more questions wait; list them with: runtime.questions()"
        for node in nodes:
            runtime.answer(f"{node.id}-1", "yes")
