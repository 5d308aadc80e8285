"""Trees that are replayed with the functions that made them: nothing differs, nothing is done."""

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from replay_journals import Tools, record
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    Budget,
    BudgetExceeded,
    CancellationException,
    CodeFunction,
    Ensemble,
    FunctionArg,
    HookDecision,
    MemoryStore,
    Node,
    NodeState,
    NodeView,
    RunContext,
    Runtime,
    SqliteStore,
    StoreError,
    ThinkMore,
    TokenUsage,
    ToolUse,
    agent,
)
from treefold.core.edit import Edit
from treefold.core.errors import InvalidValueError, UnknownQuestionError
from treefold.testing import Divergence, ScriptedFailure, ScriptedModel, ScriptedRequest, replay
from treefold.toolbox import human_in_loop, raise_exception


def use(name: str, word: str, id: str = "1") -> ToolUse:
    return ToolUse(id, name, {"word": word})


def shape(view: NodeView) -> Any:
    """What a tree looks like but for times."""
    children = [shape(child) for child in view.children]
    state, raised = view.state, view.exception
    return view.id, view.path, view.fn, view.inputs, view.outputs, raised, state, children


def recorded_view(path: Path) -> NodeView:
    with Runtime(store=path) as runtime:
        return runtime.get_view(runtime.list_toplevel()[-1].id)


def test_an_agent_with_functions_does_the_same_and_nothing_is_done(journal: Path):
    tools = Tools()

    @agent(system="You know words.", uses=[tools.look_up()])
    def explain(word: str) -> str:
        return f"Explain {word}."

    model = ScriptedModel(use("look_up", "yew"), [use("look_up", "ivy", "2")], "A tree.")
    node = record(journal, explain, {"word": "yew"}, models=model)
    made = list(tools.made)
    again = replay([explain], journal)

    assert again.divergence is None
    again.check()
    assert again.output == "A tree."
    assert (tools.made, len(model.requests)) == (made, 3)
    assert shape(again.view) == shape(recorded_view(journal))
    assert again.view.transcript == tuple(node.get_transcript())


def test_a_store_may_be_given_and_any_of_its_trees(journal: Path):
    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    store = MemoryStore()
    with Runtime([greet], models=ScriptedModel("Hi, Ada!", "Hi, Bo!"), store=store) as runtime:
        first = runtime.invoke(greet, {"name": "Ada"})
        assert first.result() == "Hi, Ada!"
        assert runtime.invoke(greet, {"name": "Bo"}).result() == "Hi, Bo!"

    assert replay([greet], store).output == "Hi, Bo!"
    assert replay([greet], store, first.id).output == "Hi, Ada!"
    with pytest.raises(InvalidValueError) as refused:
        replay([greet], store, 7)
    assert str(refused.value) == (
        "memory has no tree 7; there are: 1 (greet, success), 2 (greet, success)"
    )
    with pytest.raises(InvalidValueError, match="^memory has no tree; there are: none$"):
        replay([greet], MemoryStore())
    with pytest.raises(InvalidValueError, match="a call of greet, which is not among .* none$"):
        replay([], store)


def test_what_is_no_journal_is_refused_in_words(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(StoreError, match="notes.txt"):
        replay([], tmp_path / "notes.txt")
    with pytest.raises(StoreError, match="missing.db: it cannot be read"):
        replay([], tmp_path / "missing.db")
    assert not (tmp_path / "missing.db").exists()


def test_a_journal_that_somebody_drives_can_be_replayed(journal: Path):
    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    with Runtime([greet], models=ScriptedModel("Hi!"), store=journal) as runtime:
        assert runtime.invoke(greet, {"name": "Ada"}).result() == "Hi!"
        assert replay([greet], str(journal)).output == "Hi!"


def fan_out(look_up: CodeFunction, words: list[str], *, first: bool = False) -> CodeFunction:
    async def gather(ctx: RunContext) -> Any:
        async def one(word: str) -> str:
            return await ctx.invoke(look_up, {"word": word})

        if not first:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(word)) for word in words]
            return [task.result() for task in tasks]
        nodes = [ctx.invoke(look_up, {"word": word}) for word in words]
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(_result(node)) for node in nodes]
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for node in nodes:
                node.cancel("another was quicker")
        return [one.result() for one in done]

    return CodeFunction(name="gather", callable=gather, uses=[look_up])


async def _result(node: Node) -> Any:
    try:
        return await node
    except CancellationException as error:
        return error


def test_code_that_calls_many_at_once_does_the_same(journal: Path):
    tools = Tools()
    gather = fan_out(tools.look_up(), ["yew", "ivy", "yew"])
    record(journal, gather, {})
    again = replay([gather], journal)

    assert again.divergence is None
    assert again.output == ["look_up says yew", "look_up says ivy", "look_up says yew"]
    assert sorted(tools.made) == ["look_up ivy", "look_up yew", "look_up yew"]


def test_whoever_was_first_is_first_again(journal: Path):
    made: list[str] = []
    quick_is_done = asyncio.Event()

    async def look(ctx: RunContext, word: str) -> str:
        made.append(word)
        if word != "quick":
            await quick_is_done.wait()
        return word

    look_up = CodeFunction(name="look_up", callable=look)
    race = fan_out(look_up, ["slow", "slower", "quick"], first=True)
    record(journal, race, {})
    again = replay([race], journal)

    assert again.divergence is None
    assert again.output == ["quick"]
    assert [child.state.name for child in again.view.children] == [
        "Canceled",
        "Canceled",
        "Success",
    ]
    assert made == ["slow", "slower", "quick"]


def test_answers_are_collected_in_the_order_in_which_they_came(journal: Path):
    turns = [asyncio.Event() for _ in range(4)]
    turns[3].set()

    async def look(ctx: RunContext, number: int) -> int:
        await turns[number].wait()
        if number:
            turns[number - 1].set()
        return number

    look_up = CodeFunction(name="look_up", callable=look)

    async def collect(ctx: RunContext) -> list[int]:
        found: list[int] = []

        async def one(number: int) -> None:
            found.append(await ctx.invoke(look_up, {"number": number}))

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(one(number))
        return found

    gather = CodeFunction(name="collect", callable=collect, uses=[look_up])
    assert record(journal, gather, {}).outputs == [3, 2, 1, 0]
    again = replay([gather], journal)
    assert (again.divergence, again.output) == (None, [3, 2, 1, 0])


def test_code_in_a_thread_does_the_same(journal: Path):
    tools = Tools()
    look_up = tools.look_up()

    def both(ctx: RunContext) -> str:
        one = ctx.invoke(look_up, {"word": "a"}).result()
        return one + ctx.invoke(look_up, {"word": "b"}).result()

    function = CodeFunction(name="both", callable=both, uses=[look_up])
    record(journal, function, {})
    again = replay([function], journal)
    assert (again.divergence, again.output) == (None, "look_up says alook_up says b")
    assert tools.made == ["look_up a", "look_up b"]


@dataclass
class Word:
    text: str
    length: int


def test_sub_agents_and_results_with_a_type_do_the_same(journal: Path):
    tools = Tools()

    @agent(uses=[tools.look_up()])
    def research(word: str) -> str:
        return f"Research {word}."

    @agent(uses=[research], returns=Word)
    def measure(word: str) -> str:
        return f"Measure {word}."

    result = ToolUse("9", "return_result", {"text": "yew", "length": 3})
    model = ScriptedModel(use("research", "yew"), use("look_up", "yew"), "Three.", result)
    record(journal, measure, {"word": "yew"}, models=model)
    again = replay([measure], journal)

    assert again.divergence is None
    assert again.output == Word("yew", 3)
    assert (tools.made, len(model.requests)) == (["look_up yew"], 4)
    assert shape(again.view.children[0]) == shape(recorded_view(journal).children[0])


def test_people_are_not_asked_again(journal: Path, caplog: pytest.LogCaptureFixture):
    async def plan(ctx: RunContext) -> str:
        here = await ctx.ask("Where?")
        again = await ctx.ask("Where?")
        return f"{here}, {again}, {await ctx.invoke(human_in_loop, {'question': 'Why?'})}"

    function = CodeFunction(name="plan", callable=plan, uses=[human_in_loop])
    record(journal, function, {}, answers=["Bonn", "Ulm", "Because."])
    caplog.set_level(logging.INFO, "treefold")
    again = replay([function], journal)
    assert (again.divergence, again.output) == (None, "Bonn, Ulm, Because.")
    assert "waits for a person (human)" in caplog.text
    assert "WARNING" not in caplog.text


def test_code_that_reads_the_open_questions_reads_them_again(journal: Path):
    tools = Tools()
    look_up = tools.look_up()

    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("Where?")

    async def plan(ctx: RunContext) -> str:
        asked = ctx.invoke(asks)
        known: list[str] = []
        async for _ in ctx.runtime.watch(asked, timeout=60):
            if known := [question.text for question in ctx.runtime.questions()]:
                break
        # In a replay, the answer is given after what was done before it.
        found = await ctx.invoke(look_up, {"word": "yew"})
        with suppress(UnknownQuestionError):
            ctx.runtime.answer(f"{asked.id}-1", "Bonn")
        return f"{known}, {found}, {await asked}"

    asks = CodeFunction(name="ask", callable=ask, uses=[look_up])  # so that a replay runs it
    function = CodeFunction(name="plan", callable=plan, uses=[asks, look_up])
    node = record(journal, function, {})
    assert node.outputs == "['Where?'], look_up says yew, Bonn"
    again = replay([function], journal)
    assert (again.divergence, again.output) == (None, node.outputs)


def asks(text: str) -> dict[str, Any]:
    async def approve(event: Any) -> HookDecision:
        return HookDecision(ask=text)

    return {HOOK_PRE_TOOL_USE: [approve]}


@pytest.mark.parametrize("answer", ["allow", "deny: not now"])
@pytest.mark.parametrize("with_hooks", [True, False])
def test_approvals_are_given_as_they_were(journal: Path, answer: str, *, with_hooks: bool):
    tools = Tools()

    @agent(uses=[tools.look_up()])
    def explain(word: str) -> str:
        return f"Explain {word}."

    script = use("look_up", "yew"), "Done."
    hooks = asks("May it?")
    record(journal, explain, {"word": "yew"}, *script, hooks=hooks, answers=[answer])
    made = list(tools.made)
    again = replay([explain], journal, hooks=hooks if with_hooks else None)
    assert (again.divergence, again.output, tools.made) == (None, "Done.", made)


def renames(word: str) -> dict[str, Any]:
    async def rename(event: Any) -> HookDecision:
        return HookDecision(modified_input={"word": word})

    return {HOOK_PRE_TOOL_USE: [rename]}


def test_arguments_that_a_hook_has_changed_are_those_that_count(journal: Path):
    @agent
    def research(word: str) -> str:
        return f"Research {word}."

    @agent(uses=[research])
    def explain(word: str) -> str:
        return f"Explain {word}."

    script = use("research", "yew"), "An oak.", "Done."
    record(journal, explain, {"word": "yew"}, *script, hooks=renames("oak"))
    assert replay([explain], journal).divergence is None
    assert replay([explain], journal, hooks=renames("oak")).divergence is None
    assert replay([explain], journal, hooks=renames("elm")).divergence == Divergence(
        path="1.1",
        function="research",
        what="arguments that differ",
        expected="research\nword=oak",
        actual="research\nword=elm",
    )


def test_arguments_that_a_person_has_changed_are_those_that_count(tmp_path: Path):
    @agent
    def research(word: str) -> str:
        return f"Research {word}."

    @agent(uses=[research])
    def explain(word: str) -> str:
        return f"Explain {word}."

    script = use("research", "yew"), "An oak.", "Done."
    store, hooks = MemoryStore(), asks("May it?")
    with Runtime([explain], models=ScriptedModel(*script), store=store, hooks=hooks) as runtime:
        node = runtime.invoke(explain, {"word": "yew"})
        for _ in runtime.watch(node, timeout=60):
            if questions := runtime.questions():
                runtime.answer(questions[0].id, args={"word": "oak"})
                break
        assert node.result(timeout=60) == "Done."
    for decides in (None, hooks):
        again = replay([explain], store, hooks=decides)
        assert (again.divergence, again.output) == (None, "Done.")
        assert again.view.children[0].inputs == {"word": "oak"}


def test_values_that_were_sent_are_sent_again(journal: Path):
    made: list[int] = []

    async def count(ctx: RunContext) -> str:
        for number in range(3):
            made.append(number)
            await ctx.send(number)
        return "done"

    function = CodeFunction(name="count", callable=count)
    record(journal, function, {})
    again = replay([function], journal)
    assert (again.divergence, again.output, again.view.values) == (None, "done", (0, 1, 2))
    assert made == [0, 1, 2]


def test_what_has_no_json_form_does_not_matter_if_nobody_needs_it(journal: Path):
    class Thing:
        pass

    def make(ctx: RunContext) -> Thing:
        return Thing()

    thing = CodeFunction(name="thing", callable=make)

    async def lead(ctx: RunContext) -> Thing:
        await ctx.invoke(thing)
        return Thing()

    function = CodeFunction(name="lead", callable=lead, uses=[thing])
    record(journal, function, {})
    again = replay([function], journal)
    assert again.divergence is None
    assert isinstance(again.output, Thing)


@pytest.mark.parametrize("where", ["function", "call", "runtime"])
def test_a_budget_that_was_exceeded_is_exceeded_again(where: str):
    budget = Budget(tokens=250)

    @agent(uses=[Tools().look_up()], budget=budget if where == "function" else None)
    def explain(word: str) -> str:
        return f"Explain {word}."

    script = [use("look_up", "yew", str(number)) for number in range(4)]
    model = ScriptedModel(*script, usage=TokenUsage(input=80, output=20))
    store, for_all = MemoryStore(), budget if where == "runtime" else None
    with Runtime([explain], models=model, store=store, budget=for_all) as runtime:
        own = budget if where == "call" else None
        node = runtime.invoke(explain, {"word": "yew"}, budget=own)
        with pytest.raises(BudgetExceeded) as exceeded:
            node.result(timeout=60)
    again = replay([explain], store)
    assert again.divergence is None
    assert again.view.exception is not None
    assert again.view.exception.message == str(exceeded.value)
    assert again.view.total_usage == TokenUsage(input=160, output=40)


class OddError(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


@pytest.mark.parametrize("error", [ValueError("no such word"), OddError(1, 2)])
def test_exceptions_are_raised_as_they_were(journal: Path, error: Exception):
    tools = Tools()
    look_up = tools.look_up(result=error)

    @agent(uses=[look_up, raise_exception])
    def explain(word: str) -> str:
        return f"Explain {word}."

    async def lead(ctx: RunContext) -> str:
        try:
            await ctx.invoke(look_up, {"word": "ivy"})
        except type(error) as caught:
            return f"{caught}; {await ctx.invoke(explain, {'word': 'yew'})}"
        return "nothing"

    function = CodeFunction(name="lead", callable=lead, uses=[look_up, explain])
    script = use("look_up", "yew"), ToolUse("2", "raise_exception", {"msg": "no idea"})
    node = record(journal, function, {}, *script)
    again = replay([function], journal)

    assert again.divergence is None
    assert (again.output, again.view.state) == (None, NodeState.Error)
    assert str(again.view.exception) == "AgentException: no idea"
    assert shape(again.view) == shape(recorded_view(journal))
    assert node.state is NodeState.Error
    assert tools.made == ["look_up ivy", "look_up yew"]


def test_an_exception_whose_class_is_not_loaded_is_told_to_the_model_as_it_was(
    journal: Path, monkeypatch: pytest.MonkeyPatch
):
    look_up = Tools().look_up(result=OddError(1, 2))

    @agent(uses=[look_up])
    def explain(word: str) -> str:
        return f"Explain {word}."

    record(journal, explain, {"word": "yew"}, use("look_up", "yew"), "Done.")
    monkeypatch.delitem(sys.modules, __name__)
    again = replay([explain], journal)
    assert (again.divergence, again.output) == (None, "Done.")


def test_a_provider_that_failed_fails_again(journal: Path):
    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    record(journal, greet, {"name": "Ada"}, ScriptedFailure(500, "overloaded"))
    again = replay([greet], journal)
    assert again.divergence is None
    assert again.view.exception == recorded_view(journal).exception
    assert "overloaded" in str(again.view.exception)


@pytest.mark.parametrize("fails", [False, True])
def test_an_ensemble_does_the_same(journal: Path, *, fails: bool):
    @agent
    def add(a: int, b: int) -> str:
        return f"What is {a} + {b}?"

    def reply(request: ScriptedRequest) -> Any:
        if "Reconcile" in str(request.transcript):
            return "It is 4."
        return ScriptedFailure(500, "down") if fails else f"4, says member {len(model.requests)}"

    model = ScriptedModel(reply)
    ensemble = Ensemble(add, {"sharp": 2, "keen": 1}, allow_fail=0)
    models = {"sharp": model, "keen": model}
    record(journal, ensemble, {"a": 2, "b": 2}, models=models)
    asked = len(model.requests)
    again = replay([ensemble], journal)
    assert again.divergence is None
    assert again.output == (None if fails else "It is 4.")
    assert again.view.exception == recorded_view(journal).exception
    assert len(model.requests) == asked


def test_an_agent_that_thinks_more_does_the_same(journal: Path):
    @agent
    def add(a: int, b: int) -> str:
        return f"What is {a} + {b}?"

    more = ThinkMore(add, rounds=2)
    record(journal, more, {"a": 2, "b": 2}, "5", "3", "4")
    again = replay([more], journal)
    assert (again.divergence, again.output) == (None, "4")


def forked(journal: Path, function: Any, script: list[Any], change: Callable[..., Any]) -> None:
    with Runtime([function], models=ScriptedModel(*script), store=journal) as runtime:
        node = runtime.invoke(function, {"word": "yew"})
        node.result()
        change(runtime, node).result()


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (lambda run, node: run.fork(node, at=1), "Two."),
        (lambda run, node: run.fork(node, at=0), "Three."),
        (lambda run, node: run.fork(node, edit=Edit(prompt="Be brief.")), "Three."),
        (lambda run, node: run.fork(node, edit=Edit(args={"word": "ivy"})), "Three."),
        (lambda run, node: run.fork(node.children[0], edit=Edit(result="nothing")), "Two."),
        (lambda run, node: run.fork(node, edit=Edit(result="Nine.")), "Nine."),
    ],
    ids=["at 1", "at 0", "prompt", "args", "result of a call", "result"],
)
def test_a_fork_does_the_same(journal: Path, change: Callable[..., Any], output: str):
    tools = Tools()

    @agent(uses=[tools.look_up()])
    def explain(word: str) -> str:
        return f"Explain {word}."

    first, second = use("look_up", "yew"), "One."
    script = [first, second, "Two."]
    if output == "Three.":
        script = [first, second, use("look_up", "oak", "5"), "Three."]
    forked(journal, explain, script, change)
    made = list(tools.made)
    again = replay([explain], journal)
    assert (again.divergence, again.output, tools.made) == (None, output, made)
    assert again.view.path == "2"


def test_a_result_that_was_given_to_code_is_not_compared(journal: Path):
    tools = Tools()
    look_up = tools.look_up()

    async def inner(ctx: RunContext) -> str:
        return await ctx.invoke(look_up, {"word": "ivy"})

    within = CodeFunction(name="inner", callable=inner, uses=[look_up])

    async def outer(ctx: RunContext, word: str) -> str:
        return f"<{await ctx.invoke(within)}>"

    function = CodeFunction(name="outer", callable=outer, uses=[within])
    given = lambda run, node: run.fork(node.children[0], edit=Edit(result="7"))  # noqa: E731
    forked(journal, function, [], given)
    again = replay([function], journal)
    assert (again.divergence, again.output) == (None, "<7>")


def test_an_agent_built_from_parts_and_tools_of_one_model_does_the_same(journal: Path):
    tools = Tools()
    explain = AgentFunction(
        "explain",
        "Explain a word.",
        args=[FunctionArg("word", str, "The word")],
        user_prompt_template="Explain {word}.",
        model_tools={"sharp": [tools.look_up()]},
        default_model="sharp",
    )
    model = ScriptedModel(use("look_up", "yew"), "Done.")
    record(journal, explain, {"word": "yew"}, models={"sharp": model})
    again = replay([explain], journal)
    assert (again.divergence, again.output) == (None, "Done.")


def test_a_tool_that_failed_and_was_tried_again_does_the_same(journal: Path):
    made: list[str] = []

    def look(ctx: Any, word: str) -> str:
        made.append(word)
        if len(made) == 1:
            raise ValueError("not yet")
        return "found"

    @agent(uses=[CodeFunction(name="look_up", callable=look)])
    def explain(word: str) -> str:
        return f"Explain {word}."

    script = use("look_up", "yew"), "Done."
    paused = {"on_tool_error": "pause", "answers": ["resume"]}
    record(journal, explain, {"word": "yew"}, *script, **paused)
    again = replay([explain], journal)
    assert (again.divergence, again.output, made) == (None, "Done.", ["yew", "yew"])


def test_the_journal_is_not_written_to(journal: Path):
    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    record(journal, greet, {"name": "Ada"}, "Hi!")
    with SqliteStore(journal) as store:
        last = store.last()
        replay([greet], journal).check()
        assert store.last() == last


async def test_a_replay_may_be_made_where_a_loop_runs(journal: Path):
    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    store = MemoryStore()
    async with Runtime([greet], models=ScriptedModel("Hi!"), store=store) as runtime:
        assert await runtime.invoke(greet, {"name": "Ada"}) == "Hi!"
        assert replay([greet], store).output == "Hi!"


def test_a_journal_without_its_secrets_can_be_replayed(journal: Path):
    look_up = Tools().look_up()

    @agent(uses=[look_up])
    def explain(word: str) -> str:
        return f"Explain {word}."

    async def lead(ctx: RunContext, word: str) -> str:
        found = await ctx.invoke(look_up, {"word": word})
        return await ctx.invoke(explain, {"word": await ctx.invoke(look_up, {"word": found})})

    function = CodeFunction(name="lead", callable=lead, uses=[look_up, explain])
    script = use("look_up", "hush"), "Hush, hush."

    def redact(text: str) -> str:
        return text.replace("hush", "[secret]")

    record(journal, function, {"word": "hush"}, *script, redact=redact)
    again = replay([function], journal)
    assert (again.divergence, again.output) == (None, "Hush, [secret].")


def test_a_run_is_found_at_the_moment_at_which_its_replay_ends():
    async def leaf(ctx: RunContext, n: int) -> int:
        return n

    called = CodeFunction(callable=leaf)

    async def work(ctx: RunContext) -> int:
        return sum([await node for node in [ctx.invoke(called, {"n": n}) for n in range(100)]])

    function, store = CodeFunction(callable=work, uses=[called]), MemoryStore()
    interval = sys.getswitchinterval()
    with Runtime([function], store=store) as runtime:
        assert runtime.invoke(function).result() == 4950
    # Threads take turns as often as they can.
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            replay([function], store).check()
    finally:
        sys.setswitchinterval(interval)
