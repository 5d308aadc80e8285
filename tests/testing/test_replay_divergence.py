"""Functions that have changed since: a replay says where that shows first, and how."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from replay_journals import Tools, record
from treefold import (
    HOOK_PRE_TOOL_USE,
    CodeFunction,
    Function,
    HookDecision,
    MemoryStore,
    RunContext,
    Runtime,
    ToolUse,
    agent,
)
from treefold.core.address import address
from treefold.testing import Divergence, ScriptedModel, replay


def diff(path: str, function: str, *lines: str) -> str:
    name = f"{function} ({address(path)})"
    return "\n".join([f"--- recorded: {name}", f"+++ now: {name}", *lines])


def explainer(
    uses: Sequence[Function], system: str = "Be exact.\nBe brief.", prompt: str = "Explain {}."
) -> Any:
    @agent(system=system, uses=uses)
    def explain(word: str) -> str:
        return prompt.format(word)

    return explain


def call(word: str, id: str = "1", name: str = "look_up") -> ToolUse:
    return ToolUse(id, name, {"word": word})


@pytest.fixture
def explained(journal: Path) -> tuple[Path, Tools]:
    """An agent that called look_up, and answered."""
    tools = Tools()
    record(journal, explainer([tools.look_up()]), {"word": "yew"}, call("yew"), "A tree.")
    tools.made.clear()
    return journal, tools


def test_another_system_prompt_is_shown_line_by_line(explained: tuple[Path, Tools]):
    journal, tools = explained
    now = explainer([tools.look_up()], system="Be exact.\nBe kind.")
    again = replay([now], journal)

    assert again.divergence is not None
    assert again.divergence == Divergence(
        path="1",
        function="explain",
        what="a system prompt that differs",
        expected="Be exact.\nBe brief.",
        actual="Be exact.\nBe kind.",
    )
    lines = "@@ -1,2 +1,2 @@", " Be exact.", "-Be brief.", "+Be kind."
    assert again.divergence.diff == diff("1", "explain", *lines)
    assert again.output is None
    assert tools.made == []
    with pytest.raises(AssertionError) as failed:
        again.check()
    assert str(failed.value) == (
        f"a system prompt that differs: explain (run 1)\n{again.divergence.diff}"
    )


def test_another_prompt_is_shown(explained: tuple[Path, Tools]):
    journal, tools = explained
    again = replay([explainer([tools.look_up()], prompt="Say what {} is.")], journal)
    assert again.divergence == Divergence(
        path="1",
        function="explain",
        what="a request that differs",
        expected="Explain yew.",
        actual="Say what yew is.",
    )


@pytest.mark.parametrize("more", [True, False])
def test_a_function_more_or_less_is_shown(explained: tuple[Path, Tools], *, more: bool):
    journal, tools = explained
    uses = [tools.look_up(), tools.look_up("spell")] if more else []
    found = replay([explainer(uses)], journal).divergence
    assert found is not None
    assert (found.path, found.function, found.what) == ("1", "explain", "functions that differ")
    names = "look_up", "look_up\nspell" if more else ""
    assert (found.expected, found.actual) == names


def test_functions_in_another_order_are_the_same(journal: Path):
    tools = Tools()
    one, other = tools.look_up(), tools.look_up("spell")
    record(journal, explainer([one, other]), {"word": "yew"}, "A tree.")
    assert replay([explainer([other, one])], journal).divergence is None


def test_a_result_that_a_model_is_told_otherwise_is_shown(journal: Path):
    """The code between an agent and its tools has changed."""
    tools = Tools()
    look_up = tools.look_up()

    def shout(*, loud: bool) -> CodeFunction:
        async def shout(ctx: RunContext, word: str) -> str:
            found = await ctx.invoke(look_up, {"word": word})
            return found.upper() if loud else found

        return CodeFunction(name="shout", callable=shout, uses=[look_up])

    record(journal, explainer([shout(loud=False)]), {"word": "yew"}, call("yew", "1", "shout"), "!")
    found = replay([explainer([shout(loud=True)])], journal).divergence
    assert found == Divergence(
        path="1.1",
        function="shout",
        what="an output that differs",
        expected="look_up says yew",
        actual="LOOK_UP SAYS YEW",
    )


def reader(look_up: CodeFunction, words: Sequence[str], ending: Any = None) -> CodeFunction:
    async def read(ctx: RunContext) -> Any:
        found = {word: await ctx.invoke(look_up, {"word": word}) for word in words}
        if isinstance(ending, Exception):
            raise ending
        return sorted(found.values()) if ending is None else ending

    return CodeFunction(name="read", callable=read, uses=[look_up])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["yew", "ivy"], None),
        (["ivy", "yew"], None),
        (["yew", "oak"], ("1.3", "not made before", "look_up\nword=ivy", "look_up\nword=oak")),
        (["yew", "ivy", "oak"], ("1.3", "not made before", "", "look_up\nword=oak")),
        (["yew", "ivy", "yew"], ("1.3", "not made before", "", "look_up\nword=yew")),
        (["yew"], ("1.2", "not made any more", "look_up\nword=ivy", "")),
    ],
    ids=["same", "another order", "another call", "one more", "one twice", "one less"],
)
def test_code_that_makes_other_calls_is_shown(
    journal: Path, words: list[str], expected: tuple[str, ...] | None
):
    tools = Tools()
    look_up = tools.look_up()
    record(journal, reader(look_up, ["yew", "ivy"]), {})
    made = list(tools.made)
    found = replay([reader(look_up, words)], journal).divergence

    assert tools.made == made
    if expected is None:
        assert found is None
        return
    assert found is not None
    path, what, before, now = expected
    end = what.removeprefix("not made ")
    what = f"a call that was not made {end}" if end == "before" else f"a call that is {what}"
    assert found == Divergence(
        path=path, function="look_up", what=what, expected=before, actual=now
    )


def test_another_output_is_shown_as_json(journal: Path):
    look_up = Tools().look_up()
    record(journal, reader(look_up, [], {"b": [1, 2], "a": "x"}), {})
    found = replay([reader(look_up, [], {"b": [1, 3], "a": "x"})], journal).divergence
    assert found is not None
    assert (found.path, found.function, found.what) == ("1", "read", "an output that differs")
    assert found.diff == diff(
        "1", "read", "@@ -2,6 +2,6 @@",
        '   "a": "x",', '   "b": [', "     1,", "-    2", "+    3", "   ]", " }",
    )  # fmt: skip


def test_outputs_that_look_the_same_in_json_are_told_apart(journal: Path):
    look_up = Tools().look_up()
    record(journal, reader(look_up, [], (1, 2)), {})
    found = replay([reader(look_up, [], [1, 2])], journal).divergence
    assert found is not None
    assert (found.expected, found.actual) == ("(1, 2)", "[1, 2]")


@pytest.mark.parametrize(
    ("before", "now", "texts"),
    [
        (1, ValueError("no"), ("1", "raised ValueError: no")),
        (ValueError("no"), 1, ("raised ValueError: no", "1")),
        (ValueError("no"), ValueError("yes"), ("raised ValueError: no", "raised ValueError: yes")),
        (ValueError("no"), KeyError("no"), ("raised ValueError: no", "raised KeyError: 'no'")),
        (ValueError("no"), ValueError("no"), None),
    ],
)
def test_another_exception_is_shown(
    journal: Path, before: Any, now: Any, texts: tuple[str, str] | None
):
    look_up = Tools().look_up()
    record(journal, reader(look_up, ["yew"], before), {})
    found = replay([reader(look_up, ["yew"], now)], journal).divergence
    if texts is None:
        assert found is None
        return
    assert found == Divergence(
        path="1",
        function="read",
        what="an exception that differs",
        expected=texts[0],
        actual=texts[1],
    )


def test_a_call_with_a_name_of_its_own_and_other_arguments_is_shown(journal: Path):
    tools = Tools()
    look_up = tools.look_up()

    def asks(word: str) -> CodeFunction:
        async def read(ctx: RunContext) -> str:
            await ctx.invoke(look_up, {"word": word}, key="the word")
            return "done"

        return CodeFunction(name="read", callable=read, uses=[look_up])

    record(journal, asks("yew"), {})
    assert replay([asks("yew")], journal).divergence is None
    assert replay([asks("ivy")], journal).divergence == Divergence(
        path="1.1",
        function="look_up",
        what="arguments that differ",
        expected="look_up\nword=yew",
        actual="look_up\nword=ivy",
    )


def test_the_first_divergence_is_where_it_comes_from(journal: Path):
    """A sub-agent's prompt changed: not the output of the code above it is at fault."""
    tools = Tools()

    def lead(explain: Any) -> CodeFunction:
        async def lead(ctx: RunContext) -> list[str]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_of(ctx, explain, word)) for word in ("yew", "ivy")]
            return [task.result() for task in tasks]

        return CodeFunction(name="lead", callable=lead, uses=[explain])

    script = call("yew"), "One.", call("ivy"), "Two."
    record(journal, lead(explainer([tools.look_up()])), {}, *script)
    made = list(tools.made)
    found = replay([lead(explainer([tools.look_up()], prompt="Say {}."))], journal).divergence
    assert found is not None
    assert (found.path, found.function, found.what) == ("1.1", "explain", "a request that differs")
    assert (found.expected, found.actual) == ("Explain yew.", "Say yew.")
    assert tools.made == made


async def _of(ctx: RunContext, explain: Any, word: str) -> str:
    return await ctx.invoke(explain, {"word": word})


def test_code_that_shields_itself_does_not_hold_the_replay_up(journal: Path):
    look_up = Tools().look_up()

    def stubborn(words: Sequence[str]) -> CodeFunction:
        async def read(ctx: RunContext) -> str:
            try:
                for word in words:
                    await ctx.invoke(look_up, {"word": word})
            except BaseException:  # noqa: BLE001 - that is what it is to be stubborn
                return "never mind"
            return "done"

        return CodeFunction(name="read", callable=read, uses=[look_up])

    record(journal, stubborn(["yew"]), {})
    found = replay([stubborn(["ivy"])], journal).divergence
    assert found is not None
    assert found.what == "a call that was not made before"


def denying() -> dict[str, Any]:
    async def deny(event: Any) -> HookDecision:
        return HookDecision(continue_=False, reason="not today")

    return {HOOK_PRE_TOOL_USE: [deny]}


def test_hooks_that_decide_otherwise_are_shown(explained: tuple[Path, Tools]):
    journal, tools = explained
    found = replay([explainer([tools.look_up()])], journal, hooks=denying()).divergence
    assert found is not None
    assert (found.path, found.function) == ("1.1", "look_up")
    assert (found.what, found.expected) == ("an exception that differs", "look_up says yew")
    assert "not today" in found.actual


def test_a_question_that_was_not_asked_is_shown(journal: Path):
    look_up = Tools().look_up()

    def asks(*texts: str) -> CodeFunction:
        async def plan(ctx: RunContext) -> str:
            return " ".join([await ctx.ask(text) for text in texts])

        return CodeFunction(name="plan", callable=plan, uses=[look_up])

    record(journal, asks("Where?"), {}, answers=["Here."])
    assert replay([asks("Where?", "Why?")], journal).divergence == Divergence(
        path="1",
        function="plan",
        what="a question that was not asked before",
        expected="",
        actual="Why?",
    )


def test_requests_more_and_less_are_shown():
    """What counts as an answer has changed: a result of another type."""

    def counter(returns: Any) -> Any:
        @agent(returns=returns)
        def count(word: str) -> str:
            return f"Count {word}."

        return count

    number = ToolUse("1", "return_result", {"result": 3})
    text = ToolUse("1", "return_result", {"result": "three"})
    store = MemoryStore()
    with Runtime([counter(int)], models=ScriptedModel(text, number), store=store) as runtime:
        runtime.invoke(runtime.invocable_functions["count"], {"word": "yew"}).result()
    assert replay([counter(int)], store).divergence is None
    found = replay([counter(str)], store).divergence
    assert found is not None
    assert (found.path, found.function, found.what) == (
        "1.1", "return_result", "an exception that differs",
    )  # fmt: skip
    assert found.actual == "three"
