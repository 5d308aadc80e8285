"""Trees of an earlier process whose functions have changed since."""

import json
import linecache
import logging
from pathlib import Path
from typing import Any

import pytest

from journal.processes import Lives, World, answer_in_turn, failure, question_of, result
from support import wait
from treefold import (
    AgentFunction,
    CancellationException,
    CodeFunction,
    Function,
    FunctionArg,
    MemoryStore,
    Node,
    NodeState,
    NodeView,
    Question,
    QuestionKind,
    RunContext,
    Runtime,
    ToolUse,
    attach,
)
from treefold.core.errors import InvalidValueError
from treefold.core.fact import replace
from treefold.runtime.durable.function_version import version_of
from treefold.testing import ScriptedModel
from treefold.testing.store_suite import write
from view_trees import flat

NOTICE = "has changed since this call was made"


# A tree of code: *work* calls *step*, then asks


async def step_a(ctx: RunContext, n: int) -> str:
    return f"step {n}"


async def step_b(ctx: RunContext, n: int) -> str:
    return f"new step {n}"


async def sign_a(ctx: RunContext) -> str:
    return f"signed: {await ctx.ask('Sign?')}"


async def sign_b(ctx: RunContext) -> str:
    return f"newly signed: {await ctx.ask('Sign?')}"


def tree(*, work: str = "a", step: str = "a", sign: str = "a") -> CodeFunction:
    """Return code that calls a step, and then one that asks; each in one of two versions."""
    steps = CodeFunction(callable=step_a if step == "a" else step_b, name="step")
    signs = CodeFunction(callable=sign_a if sign == "a" else sign_b, name="sign", repeatable=True)

    async def work_a(ctx: RunContext) -> list[str]:
        return [await ctx.invoke(steps, {"n": 1}), await ctx.invoke(signs)]

    async def work_b(ctx: RunContext) -> list[str]:
        return [await ctx.invoke(steps, {"n": 1}), await ctx.invoke(signs), "new"]

    return CodeFunction(
        callable=work_a if work == "a" else work_b, name="work", uses=[steps, signs]
    )


def start(path: Path, function: Function) -> int:
    """Have a runtime make the call and end when it waits for a person; return its id."""
    with Runtime([function], store=path) as runtime:
        node = runtime.invoke(function)
        wait(runtime.questions)
    return node.id


def notices(view: NodeView) -> dict[str, tuple[str, ...]]:
    """Return the notices of each call that has some, by the name of its function."""
    return {one.fn: one.notices for one in flat(view) if one.notices}


def finish(runtime: Runtime) -> Any:
    """Answer the question of the only open tree, and return its result."""
    [node] = runtime.recover()
    runtime.answer(question_of(runtime).id, "yes")
    return result(node)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_each_call_in_a_journal_has_the_version_of_its_function(path: Path):
    work = tree()
    id = start(path, work)
    with attach(path) as observer:
        views = flat(observer.get_view(id))
    made = {"work": work, **{one.name: one for one in work.uses}}
    assert {view.fn: view.version for view in views} == {
        name: version_of(function) for name, function in made.items()
    }
    with Runtime([work], store=path) as runtime:
        assert flat(runtime.get_view(id))[0].version == version_of(work)


def test_without_a_journal_there_is_no_version():
    with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=step_a), {"n": 1})
        result(node)
        assert runtime.get_view(node.id).version == ""


def working(world: World, prompt: str = "Work.") -> list[Function]:
    last = world.tool("last", dies=True, repeatable=True)

    async def code(ctx: RunContext) -> str:
        return await ctx.invoke(last, {"n": 2})

    agent = AgentFunction("agent", "Work.", user_prompt_template=prompt, uses=[last])
    return [agent, CodeFunction(callable=code, uses=[last])]


def model(world: World) -> ScriptedModel:
    return world.model(ToolUse("1", "last", {"n": 1}), "done")


def agent_dies(world: World) -> None:
    functions = working(world)
    with world.runtime(*functions, models=model(world)) as runtime:
        runtime.invoke(functions[0])


def code_dies(world: World) -> None:
    functions = working(world)
    with world.runtime(*functions, models=model(world)) as runtime:
        runtime.invoke(functions[1])


@pytest.mark.parametrize("policy", ["adopt", "pause", "pin"])
@pytest.mark.parametrize(("dies", "value"), [(agent_dies, "done"), (code_dies, "last 2")])
def test_nothing_is_said_about_a_function_that_has_not_changed(
    world: World, lives: Lives, caplog: pytest.LogCaptureFixture, policy: Any, dies: Any, value: str
):
    lives.killed(dies, world)
    with world.runtime(*working(world), models=model(world), on_new_code=policy) as runtime:
        [node] = runtime.recover()
        assert result(node) == value
        assert notices(runtime.get_view(node.id)) == {}
    assert logged(caplog) == []


def test_the_changed_prompt_of_an_agent_that_was_killed_is_noticed(world: World, lives: Lives):
    lives.killed(agent_dies, world)
    functions = working(world, prompt="Work harder.")
    with world.runtime(*functions, models=model(world)) as runtime:
        [node] = runtime.recover()
        assert result(node) == "done"
        view = runtime.get_view(node.id)
        text = f"agent {NOTICE} (its prompt): it continues with the new version"
        assert notices(view) == {"agent": (f"{text}; the prompts stay those that it began with",)}
        assert view.version == version_of(functions[0])


# Adopt


def test_changed_code_of_an_open_call_is_adopted_with_a_notice(
    path: Path, caplog: pytest.LogCaptureFixture
):
    id = start(path, tree())
    with Runtime([tree(work="b", step="b")], store=path) as runtime:
        assert finish(runtime) == ["step 1", "signed: yes", "new"]
        # The step has ended, so that its code does not matter any more.
        text = f"work {NOTICE} (its code): it continues with the new version"
        assert notices(runtime.get_view(id)) == {"work": (text,)}
    assert logged(caplog) == [f"work (run 1): {text}"]


def test_a_changed_function_below_is_noticed_on_its_call(path: Path):
    id = start(path, tree())
    with Runtime([tree(sign="b")], store=path) as runtime:
        assert finish(runtime) == ["step 1", "newly signed: yes"]
        text = f"sign {NOTICE} (its code): it continues with the new version"
        assert notices(runtime.get_view(id)) == {"sign": (text,)}


def test_what_was_adopted_is_not_noticed_again(path: Path):
    id = start(path, tree())
    for _ in range(2):
        with Runtime([tree(sign="b")], store=path):
            pass  # leaving the block waits until everything waits for a person
        with attach(path) as observer:
            assert [len(told) for told in notices(observer.get_view(id)).values()] == [1]
    with Runtime([tree(sign="a")], store=path) as runtime:  # but that it changed back is
        assert finish(runtime) == ["step 1", "signed: yes"]
        assert [len(told) for told in notices(runtime.get_view(id)).values()] == [2]


def test_a_conversation_keeps_its_prompts_and_gets_the_changed_tools(path: Path):
    def agent(prompt: str, *more: Function) -> AgentFunction:
        sign = CodeFunction(callable=sign_a, name="sign", repeatable=True)
        return AgentFunction("agent", "Work.", user_prompt_template=prompt, uses=[sign, *more])

    step = CodeFunction(callable=step_a, name="step", args=[FunctionArg("n", int)])
    with Runtime([agent("Sign.")], models=ScriptedModel(ToolUse("1", "sign", {})), store=path) as r:
        node = r.invoke(r.invocable_functions["agent"])
        wait(r.questions)
    model = ScriptedModel(ToolUse("2", "step", {"n": 1}), "done")
    with Runtime([agent("Sign now.", step)], models=model, store=path) as runtime:
        assert finish(runtime) == "done"
        view = runtime.get_view(node.id)
        assert view.transcript[0].text == "Sign."  # pyright: ignore[reportAttributeAccessIssue]
        assert view.notices == (
            f"agent {NOTICE} (its prompt, its tools): it continues with the new version; the"
            " prompts stay those that it began with",
            "its requests begin anew after response 1: other functions",
        )


# Pause


def paused(runtime: Any, id: int) -> Question:
    """Wait for the question whether the call with this id shall continue."""
    return wait(lambda: next((q for q in runtime.questions() if q.node_id == id), None))


def test_changed_code_waits_for_a_person_and_is_resumed(path: Path):
    id = start(path, tree())
    with Runtime([tree(work="b")], store=path, on_new_code="pause") as runtime:
        question = paused(runtime, id)
        assert (question.kind, question.choices) == (QuestionKind.Paused, ("resume", "cancel"))
        assert question.text == (
            f"work {NOTICE} (its code): resume continues with the new version, cancel ends it"
        )
        assert runtime.get_view(id).state is NodeState.Paused
        runtime.answer(question.id, "resume")
        wait(lambda: question.id not in {q.id for q in runtime.questions()})
        assert finish(runtime) == ["step 1", "signed: yes", "new"]
        assert len(notices(runtime.get_view(id))["work"]) == 1


def test_changed_code_that_waits_for_a_person_can_be_cancelled(path: Path):
    id = start(path, tree())
    with Runtime([tree(work="b")], store=path, on_new_code="pause") as runtime:
        [node] = runtime.recover()
        runtime.answer(paused(runtime, id).id, "cancel")
        assert isinstance(failure(node), CancellationException)
    assert states(path, id) == {"work": NodeState.Canceled, "step": NodeState.Success,
                                "sign": NodeState.Canceled}  # fmt: skip


def states(path: Path, id: int) -> dict[str, NodeState]:
    with attach(path) as observer:
        return {view.fn: view.state for view in flat(observer.get_view(id))}


def test_it_asks_once_however_often_the_journal_is_opened(path: Path):
    start(path, tree())
    asked: set[str] = set()
    for _ in range(2):
        with Runtime([tree(sign="b")], store=path, on_new_code="pause") as runtime:
            asked.add(question_about_code(runtime).id)
            assert len(runtime.questions()) == 2  # the other is that of the call itself
    assert len(asked) == 1


def test_the_question_is_withdrawn_when_the_code_is_as_before(path: Path):
    id = start(path, tree())
    with Runtime([tree(sign="b")], store=path, on_new_code="pause") as runtime:
        asked = question_about_code(runtime)
    with Runtime([tree(sign="a")], store=path, on_new_code="pause") as runtime:
        wait(lambda: asked.id not in {q.id for q in runtime.questions()})
        assert finish(runtime) == ["step 1", "signed: yes"]
        assert notices(runtime.get_view(id)) == {}


def question_about_code(runtime: Runtime) -> Question:
    return wait(lambda: next((q for q in runtime.questions() if NOTICE in q.text), None))


@pytest.mark.parametrize("answer", ["resume", "cancel"])
def test_the_answer_may_come_while_no_process_runs_it(path: Path, answer: str):
    id = start(path, tree())
    with Runtime([tree(work="b")], store=path, on_new_code="pause") as runtime:
        asked = paused(runtime, id)
    with attach(path) as observer:
        observer.answer(asked.id, answer)
    with Runtime([tree(work="b")], store=path, on_new_code="pause") as runtime:
        if answer == "cancel":
            [node] = runtime.list_toplevel()
            assert isinstance(failure(node), CancellationException)
        else:
            assert finish(runtime) == ["step 1", "signed: yes", "new"]
            assert len(notices(runtime.get_view(id))["work"]) == 1


def resumes_and_dies(world: World) -> None:
    """Agree to the new code, and be killed as soon as that is written."""
    with Runtime([tree(work="b")], store=world.file, on_new_code="pause") as runtime:
        [node] = runtime.recover()
        asked = paused(runtime, node.id)
        runtime.answer(asked.id, "resume")
        wait(lambda: "QuestionSettled" in world.kinds(node))
        world.die()


def test_an_answer_is_not_lost_when_the_process_dies_after_it(world: World, lives: Lives):
    id = start(world.file, tree())
    lives.killed(resumes_and_dies, world)
    with Runtime([tree(work="b")], store=world.file, on_new_code="pause") as runtime:
        assert finish(runtime) == ["step 1", "signed: yes", "new"]
        assert len(notices(runtime.get_view(id))["work"]) == 1


def test_a_call_in_doubt_asks_about_its_code_first(path: Path):
    def paying(bank: str) -> CodeFunction:
        async def pay_a(ctx: RunContext) -> str:
            return await ctx.ask("To which bank?")

        async def pay_b(ctx: RunContext) -> str:
            return f"paid to bank {bank}"

        return CodeFunction(callable=pay_b if bank else pay_a, name="pay")

    start(path, paying(""))
    with Runtime([paying("B")], store=path, on_new_code="pause") as runtime:
        [node] = runtime.recover()
        asked = answer_in_turn(runtime, "to that one", "resume", "retry")
        kinds = [question.kind for question in asked]
        assert kinds == [QuestionKind.Human, QuestionKind.Paused, QuestionKind.InDoubt]
        assert result(node) == "paid to bank B"


# Pin


def test_a_pinned_tree_stays_as_it_is_until_its_version_is_back(
    path: Path, caplog: pytest.LogCaptureFixture
):
    id = start(path, tree())
    before = states(path, id)
    changed = tree(sign="b")
    with Runtime([changed], store=path, on_new_code="pin") as runtime:
        assert runtime.recover() == []
        node = runtime.invoke(changed)  # a new call is not affected
        runtime.answer(wait(lambda: of_tree(runtime, node)).id, "yes")
        assert result(node) == ["step 1", "newly signed: yes"]
    assert states(path, id) == before
    [line] = logged(caplog)
    assert line == (
        f"run 1 is held back: sign {NOTICE} (its code), in call 1.2, and on_new_code is 'pin'"
    )
    with Runtime([tree()], store=path, on_new_code="pin") as runtime:
        assert finish(runtime) == ["step 1", "signed: yes"]
        assert notices(runtime.get_view(id)) == {}


def of_tree(runtime: Runtime, node: Node) -> Question | None:
    inside = {view.id for view in flat(runtime.get_view(node.id))}
    return next((q for q in runtime.questions() if q.node_id in inside), None)


def test_an_answer_for_a_pinned_tree_is_kept_for_its_version(path: Path):
    id = start(path, tree())
    with Runtime([tree(work="b")], store=path, on_new_code="pin") as runtime:
        [question] = runtime.questions()
        runtime.answer(question.id, "yes")
    assert states(path, id)["work"] is NodeState.Running
    with Runtime([tree()], store=path, on_new_code="pin") as runtime:
        [node] = runtime.list_toplevel()
        assert result(node) == ["step 1", "signed: yes"]


def test_the_policy_is_checked():
    with pytest.raises(InvalidValueError, match="on_new_code must be 'adopt', 'pause' or 'pin'"):
        Runtime(on_new_code="ignore")  # pyright: ignore[reportArgumentType]


# Forks


@pytest.mark.parametrize("policy", ["adopt", "pause", "pin"])
def test_a_fork_runs_with_the_code_of_its_time_and_nothing_is_said(path: Path, policy: Any):
    id = start(path, tree())
    work = tree(work="b", sign="b")
    with Runtime([work], store=path, on_new_code=policy) as runtime:
        [_, step, _] = runtime.get_subtree(id)
        fork = runtime.fork(step)
        wait(lambda: of_tree(runtime, fork))
        runtime.cancel(id)
        assert notices(runtime.get_view(fork.id)) == {}
    with Runtime([work], store=path, on_new_code=policy) as runtime:
        assert finish(runtime) == ["step 1", "newly signed: yes", "new"]
        view = runtime.get_view(fork.id)
        assert notices(view) == {}
        assert view.version == version_of(work)


def test_a_fork_is_compared_with_the_code_it_was_made_with(path: Path):
    id = start(path, tree())
    with Runtime([tree(work="b")], store=path) as runtime:
        fork = runtime.fork(id)
        wait(lambda: of_tree(runtime, fork))
        runtime.cancel(id)
    with Runtime([tree()], store=path) as runtime:
        assert finish(runtime) == ["step 1", "signed: yes"]
        assert list(notices(runtime.get_view(fork.id))) == ["work"]


CELL = """
from treefold import CodeFunction

async def work(ctx) -> str:
    return f"signed {await ctx.ask('Sign?')}"

working = CodeFunction(callable=work, repeatable=True)
working.__wrapped__ = work
"""


def run_cell(number: int, source: str, namespace: dict[str, Any]) -> CodeFunction:
    """Define a function as a notebook does, where inspect finds the source."""
    file = f"<ipython-input-{number}-0>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), namespace)
    return namespace["working"]


def test_a_cell_that_is_run_again_does_not_concern_the_calls_of_the_same_process(path: Path):
    namespace = {"__name__": "__main__"}
    first = run_cell(1, CELL, namespace)
    with Runtime([first], store=path, on_new_code="pause") as runtime:
        node = runtime.invoke(first)
        wait(runtime.questions)
        second = run_cell(2, CELL.replace("signed", "newly signed"), namespace)
        newer = runtime.invoke(second)
        fork = runtime.fork(node)
        for question in wait(lambda: q if len(q := runtime.questions()) == 3 else None):
            runtime.answer(question.id, "now")
        assert [result(one) for one in (node, newer, fork)] == [
            "signed now",
            "newly signed now",
            "newly signed now",
        ]
        views = [runtime.get_view(one.id) for one in (node, newer, fork)]
        assert [view.notices for view in views] == [(), (), ()]
        assert [view.version for view in views] == [
            version_of(first),
            version_of(second),
            version_of(second),
        ]


# What a journal may have done to versions


def test_a_version_is_not_redacted(path: Path):
    def redact(text: str) -> str:
        return "".join("#" if char.isdigit() or char in "abcdef" else char for char in text)

    work = tree()
    with Runtime([work], store=path, redact=redact) as runtime:
        node = runtime.invoke(work)
        wait(runtime.questions)
    with Runtime([work], store=path, redact=redact, on_new_code="pin") as runtime:
        finish(runtime)
        assert runtime.get_view(node.id).version == version_of(work)


def without(field: str, store: MemoryStore, id: int) -> MemoryStore:
    """Return a copy of the tree *id* as an earlier release, which had no such field, wrote it."""
    copy = MemoryStore()
    copy.join()
    for entry in store.entries(id):
        body = {key: value for key, value in json.loads(entry.body).items() if key != field}
        write(copy, [replace(entry, body=json.dumps(body), seq=0)])
    copy.close()
    return copy


def test_a_journal_without_versions_is_resumed_without_a_notice():
    work, store = tree(), MemoryStore()
    with Runtime([work], store=store) as runtime:
        node = runtime.invoke(work)
        wait(runtime.questions)
    old = without("version", store, node.id)
    with Runtime([tree(work="b", sign="b")], store=old, on_new_code="pin") as runtime:
        assert finish(runtime) == ["step 1", "newly signed: yes", "new"]
        view = runtime.get_view(node.id)
        assert (notices(view), view.version) == ({}, "")
