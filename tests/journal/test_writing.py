"""What is written to a journal and when, and what can be a store."""

import asyncio
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from journal.processes import World, failure, numberless, question_of, result
from support import wait
from treefold import (
    AgentFunction,
    CancellationException,
    CodeFunction,
    MemoryStore,
    Node,
    RunContext,
    Runtime,
    SqliteStore,
    ToolUse,
    agent,
)
from treefold.core.errors import FencedError
from treefold.core.store import Batch, Entry
from treefold.testing import ScriptedModel
from view_trees import flat


def asker(*uses: Any, **options: Any) -> AgentFunction:
    return AgentFunction("asker", "Ask.", user_prompt_template="Ask.", uses=uses, **options)


def entries(world: World, node: Node) -> list[Entry]:
    store = SqliteStore(world.file)
    try:
        return store.entries(node.id)
    finally:
        store.close()


def test_every_event_but_streamed_deltas_is_in_the_journal_in_order(world: World):
    boss = asker(world.tool("look"))
    model = world.model([ToolUse("1", "look", {"n": 3})], "It is all right.")
    with world.runtime(boss, models=model) as runtime:
        node = runtime.invoke(boss)
        assert result(node) == "It is all right."
        [child] = node.get_children()
        assert isinstance(child, Node)
        kept = entries(world, node)
        assert [entry.kind for entry in kept if entry.node == node.id] == [
            "CallRequested",
            "CallStarted",
            "ConversationOpened",
            "RequestSent",
            "ResponseCompleted",
            "RequestSent",
            "ResponseCompleted",
            "CallEnded",
        ]
        assert [entry.kind for entry in kept if entry.node == child.id] == [
            "CallRequested",
            "CallStarted",
            "CallEnded",
        ]
        places = [entry.seq for entry in kept]
        assert places == sorted(set(places))
        for id in node.id, child.id:
            own = [entry.number for entry in kept if entry.node == id]
            assert own == list(range(1, len(own) + 1))


def test_a_call_and_the_response_that_asked_for_it_are_committed_before_its_code_begins(
    world: World,
):
    seen: list[tuple[list[str], list[str]]] = []

    def look(ctx: RunContext) -> str:
        assert ctx.node.parent is not None
        seen.append((world.kinds(ctx.node), world.kinds(ctx.node.parent)))
        return "seen"

    async def look_too(ctx: RunContext) -> str:
        return look(ctx)

    boss = asker(CodeFunction(callable=look), CodeFunction(callable=look_too), parallel_tools=True)
    model = world.model([ToolUse("1", "look"), ToolUse("2", "look_too")], "done")
    with world.runtime(boss, models=model) as runtime:
        assert result(runtime.invoke(boss)) == "done"
    assert [own for own, _ in seen] == [["CallRequested", "CallStarted"]] * 2
    assert all(above[-1] == "ResponseCompleted" for _, above in seen)


def test_a_caller_sees_a_result_only_when_it_is_committed(world: World):
    seen: list[str] = []
    look = world.tool("look")

    async def caller(ctx: RunContext) -> str:
        child = ctx.invoke(look)
        value = await child
        seen.append(world.kinds(child)[-1])
        return value

    function = CodeFunction(callable=caller, uses=[look])
    with world.runtime(function) as runtime:
        node = runtime.invoke(function)
        assert result(node) == "look 0"
        seen.append(world.kinds(node)[-1])
    assert seen == ["CallEnded", "CallEnded"]


def test_a_caller_sees_a_failure_only_when_it_is_committed(world: World):
    def fail(ctx: RunContext) -> None:
        raise ValueError("no")

    function = CodeFunction(callable=fail)
    with world.runtime(function) as runtime:
        node = runtime.invoke(function)
        with pytest.raises(ValueError, match="no"):
            result(node)
        assert world.kinds(node)[-1] == "CallEnded"


def test_a_caller_sees_that_a_call_was_cancelled_only_when_that_is_committed(world: World):
    async def forever(ctx: RunContext) -> None:
        world.add("begun")
        await asyncio.Event().wait()

    function = CodeFunction(callable=forever)
    with world.runtime(function) as runtime:
        for number in range(1, 6):
            node = runtime.invoke(function)
            wait(lambda: world.done("begun") == number)  # noqa: B023 - called at once
            node.cancel()
            with pytest.raises(CancellationException):
                result(node)
            assert world.kinds(node)[-1] == "CallEnded"


async def test_whoever_awaits_a_result_sees_it_only_when_it_is_committed(world: World):
    look = world.tool("look")
    async with world.runtime(look) as runtime:
        node = runtime.invoke(look)
        assert await node == "look 0"
        assert world.kinds(node)[-1] == "CallEnded"


def test_other_events_are_committed_soon_without_one_that_matters_more(world: World):
    async def sender(ctx: RunContext) -> str:
        await ctx.send("half")
        return await ctx.ask("And now?")

    function = CodeFunction(callable=sender)
    with world.runtime(function) as runtime:
        node = runtime.invoke(function)
        wait(lambda: "ValueSent" in world.kinds(node))
        wait(lambda: "QuestionAsked" in world.kinds(node))
        runtime.answer(question_of(runtime).id, "the rest")
        assert result(node) == "the rest"


class CountingStore(SqliteStore):
    """Counts its commits."""

    commits = 0

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        self.commits += 1
        return super().append(batches)


def commits(path: Path, world: World, steps: int) -> int:
    boss = asker(world.tool("look"), max_steps=100)
    script = [[ToolUse(str(n), "look", {"n": n})] for n in range(steps)]
    store = CountingStore(path)
    with Runtime([boss], models=world.model(*script, "done"), store=store) as runtime:
        assert result(runtime.invoke(boss)) == "done"
    return store.commits


def test_a_step_of_an_agent_with_one_call_is_two_commits(world: World):
    found: list[int] = []
    for attempt in range(20):  # what waits for 10 ms is one more, now and then
        one = commits(world.folder / f"one-{attempt}.db", world, 1)
        found.append(commits(world.folder / f"many-{attempt}.db", world, 21) - one)
        if found[-1] <= 44:
            break
    assert 36 <= min(found) <= 44, found


# --- what may be written to


@pytest.mark.parametrize("kind", [str, Path, SqliteStore], ids=["text", "path", "store"])
def test_a_store_is_a_path_or_a_store(world: World, kind: Any):
    look = world.tool("look")
    with Runtime([look], store=kind(world.file)) as runtime:
        first = runtime.invoke(look, {"n": 1})
        assert result(first) == "look 1"
    with Runtime([look], store=world.file) as runtime:
        assert [node.id for node in runtime.list_toplevel()] == [first.id]


def test_a_store_in_memory_is_one_too(world: World):
    look, store = world.tool("look"), MemoryStore()
    with Runtime([look], store=store) as runtime:
        assert result(runtime.invoke(look, {"n": 1}, key="a")) == "look 1"
    with Runtime([look], store=store) as runtime:
        assert result(runtime.invoke(look, {"n": 1}, key="a")) == "look 1"
    assert world.done("look") == 1


def test_a_store_may_be_told_not_to_wait_for_the_disk(world: World):
    look = world.tool("look")
    with Runtime([look], store=SqliteStore(world.file, synchronous="NORMAL")) as runtime:
        assert result(runtime.invoke(look)) == "look 0"
    with world.runtime(look) as runtime:
        assert len(runtime.list_toplevel()) == 1


def test_what_a_journal_holds_is_for_its_owner_only(world: World):
    look = world.tool("look")
    with world.runtime(look) as runtime:
        result(runtime.invoke(look))
        files = [path for path in world.folder.iterdir() if path.name.startswith("run.db")]
        assert files
        for path in files:
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path


def test_what_is_to_be_redacted_is_in_no_file_and_the_run_does_not_notice(world: World):
    secret = "sesame-4711"

    def knows(ctx: RunContext, word: str) -> dict[str, Any]:
        world.add("word", right=word == secret)
        return {"word": word, "nested": [f"<{word}>", {word: 1}]}

    def raises(ctx: RunContext, word: str) -> None:
        raise ValueError(f"not {word}")

    knowing, raising = CodeFunction(callable=knows), CodeFunction(callable=raises)

    @agent(uses=[knowing])
    def talk(word: str) -> str:
        return f"The word is {word}, and so is " + 40 * f"{word} "

    shown: list[str] = []

    def says(request: Any) -> str:
        shown.append(repr(request.transcript))
        return f"I was told {secret}."

    model = ScriptedModel([ToolUse("1", "knows", {"word": secret})], says)

    def redact(text: str) -> str:
        return text.replace(secret, "[secret]")

    with world.runtime(talk, raising, models=model, redact=redact) as runtime:
        talked = runtime.invoke(talk, {"word": secret}, key="talk")
        assert result(talked) == f"I was told {secret}."
        assert secret in str(failure(runtime.invoke(raising, {"word": secret})))
        during = b"".join(path.read_bytes() for path in world.folder.glob("run.db*"))
    after = b"".join(path.read_bytes() for path in world.folder.glob("run.db*"))
    assert world.told("word", "right") == [True]
    assert secret in shown[0]
    assert secret.encode() not in during + after
    with world.runtime(talk, raising, models=model) as runtime:
        views = [runtime.get_view(node.id) for node in runtime.list_toplevel()]
        texts = repr([numberless(one) for view in views for one in flat(view)])
        assert secret not in texts
        assert "[secret]" in texts
