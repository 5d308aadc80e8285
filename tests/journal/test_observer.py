"""Observing a journal, answering and controlling its trees from another process."""

import asyncio

import pytest

import treefold
from journal.processes import Lives, World, answer_in_turn, failure, numberless, question_of, result
from support import wait
from treefold import (
    CancellationException,
    CodeFunction,
    NodeState,
    QuestionKind,
    RunContext,
    Runtime,
    StoreError,
    StoreOwnedError,
)
from treefold.core.errors import InvalidValueError, UnknownNodeError, UnknownQuestionError


def asking(world: World) -> CodeFunction:
    async def ask(ctx: RunContext) -> str:
        world.add("run")
        return f"{await ctx.ask('Which colour?', ['red', 'blue'])} {await ctx.ask('Why?')}"

    return CodeFunction(callable=ask, repeatable=True)


def dies_asking(world: World) -> None:
    ask = asking(world)
    with world.runtime(ask) as runtime:
        runtime.invoke(ask, key="a")
        world.kept_questions()
        world.die()


# --- looking


def looks(world: World) -> None:
    with treefold.attach(world.file) as observer:
        [row] = observer.trees()
        world.add("row", row=[row.function, row.key, row.state.value, row.open, row.parked])
        world.add("view", view=repr(numberless(observer.get_view(row.id))))
        world.add("question", question=repr(observer.questions()))


def test_another_process_sees_trees_views_and_questions(world: World, lives: Lives):
    ask = asking(world)
    with world.runtime(ask) as runtime:
        node = runtime.invoke(ask, key="a")
        question = question_of(runtime)
        wait(lambda: "QuestionAsked" in world.kinds(node))
        lives.ended(looks, world)
        assert world.told("row", "row") == [["ask", "a", "paused", True, True]]
        assert world.told("view", "view") == [repr(numberless(runtime.get_view(node.id)))]
        assert world.told("question", "question") == [repr([question])]
        answer_in_turn(runtime, "red", "so")
        assert result(node) == "red so"
    lives.ended(looks, world)
    assert world.told("row", "row")[1] == ["ask", "a", "success", False, False]
    assert world.told("question", "question")[1] == "[]"


def test_an_observer_needs_no_driver_and_starts_nothing(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    with treefold.attach(world.file) as observer:
        [row] = observer.trees()
        assert (row.open, row.parked) == (True, True)
        view = observer.get_view(row.id)
        assert view.state is NodeState.Paused
        assert observer.questions() == list(view.questions)
        with pytest.raises(UnknownNodeError):
            observer.get_view(4711)
    assert world.done("run") == 1
    ask = asking(world)
    with world.runtime(ask) as runtime:  # it did not take the place of the driver
        answer_in_turn(runtime, "red", "so")
        assert result(runtime.recover()[0]) == "red so"


def test_an_observer_watches_a_tree_to_its_end(world: World):
    ask = asking(world)
    with world.runtime(ask) as runtime, treefold.attach(world.file) as observer:
        node = runtime.invoke(ask)
        question_of(runtime)
        wait(observer.trees)
        assert observer.watch(node.id).result().id == node.id
        answer_in_turn(runtime, "red", "so")
        views = list(observer.watch(node.id, timeout=60))
        assert views[-1].outputs == "red so"
        numbers = [view.update_seqnum for view in views]
        assert numbers == sorted(set(numbers))
        assert result(node) == "red so"  # the journal knows of the end a moment before the runtime
        assert numberless(views[-1]) == numberless(runtime.get_view(node.id))


async def test_an_observer_watches_in_a_loop(world: World):
    ask = asking(world)
    async with asyncio.timeout(60), world.runtime(ask) as runtime:
        with treefold.attach(world.file) as observer:
            node = runtime.invoke(ask)
            async with asyncio.timeout(60):
                while not observer.questions():  # noqa: ASYNC110 - it polls, too
                    await asyncio.sleep(0.01)
            seen = await observer.watch(node.id)
            for text in "blue", "so":
                [question] = await until_asked(runtime)
                runtime.answer(question.id, text)
                await asyncio.sleep(0)
            views = [view async for view in observer.watch(node.id, seen.update_seqnum)]
            assert views[-1].outputs == "blue so"


async def until_asked(runtime: Runtime) -> list[treefold.Question]:
    async with asyncio.timeout(60):
        while not (questions := runtime.questions()):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.001)
    return questions


def test_a_watch_says_that_nothing_happened(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    with treefold.attach(world.file) as observer:
        [row] = observer.trees()
        view = observer.watch(row.id).result()
        with pytest.raises(TimeoutError):
            observer.watch(row.id, view.update_seqnum, timeout=0.05).result()


def test_there_is_nothing_to_attach_to_where_no_journal_is(world: World):
    with pytest.raises(StoreError):
        treefold.attach(world.folder / "nothing.db").trees()


# --- answering


def answers_red(world: World) -> None:
    with treefold.attach(world.file) as observer:
        [question] = wait(observer.questions)
        try:
            observer.answer(question.id, "green")
        except InvalidValueError:
            world.add("refused")
        observer.answer(question.id, "red")
        try:
            observer.answer(question.id, "red")
        except UnknownQuestionError:
            world.add("answered already")
        try:
            observer.answer("77-1", "red")
        except UnknownQuestionError:
            world.add("unknown")


def test_a_live_driver_follows_an_answer_of_another_process(world: World, lives: Lives):
    ask = asking(world)
    with world.runtime(ask) as runtime:
        node = runtime.invoke(ask)
        first = question_of(runtime)
        lives.ended(answers_red, world)
        wait(lambda: [q for q in runtime.questions() if q.id != first.id])
        answer_in_turn(runtime, "so")
        assert result(node) == "red so"
    assert world.all_done == {"run": 1, "refused": 1, "answered already": 1, "unknown": 1}


def test_a_later_driver_follows_an_answer_when_it_opens_the_file(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    lives.ended(answers_red, world)
    with treefold.attach(world.file) as observer:
        assert observer.questions() == []
    ask = asking(world)
    with world.runtime(ask) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        assert question.text == "Why?"
        runtime.answer(question.id, "so")
        assert result(node) == "red so"


def test_a_question_is_answered_by_whoever_comes_first(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    with treefold.attach(world.file) as one, treefold.attach(world.file) as two:
        [question] = one.questions()
        one.answer(question.id, "red")
        with pytest.raises(UnknownQuestionError):
            two.answer(question.id, "blue")


# --- cancelling, pausing, resuming


def cancels(world: World) -> None:
    with treefold.attach(world.file) as observer:
        observer.cancel(observer.trees()[0].id)


def test_another_process_cancels_a_tree(world: World, lives: Lives):
    ask = asking(world)
    with world.runtime(ask) as runtime:
        node = runtime.invoke(ask)
        question_of(runtime)
        lives.ended(cancels, world)
        assert isinstance(failure(node), CancellationException)
        assert node.state is NodeState.Canceled


def test_a_later_driver_cancels_what_was_to_be_cancelled(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    lives.ended(cancels, world)
    ask = asking(world)
    with world.runtime(ask) as runtime:
        [node] = runtime.list_toplevel()
        assert isinstance(failure(node), CancellationException)
    assert world.done("run") == 1


def pauses(world: World) -> None:
    with treefold.attach(world.file) as observer:
        observer.pause(observer.trees()[0].id)


def resumes(world: World) -> None:
    with treefold.attach(world.file) as observer:
        observer.resume(observer.trees()[0].id)


def stepping(world: World) -> CodeFunction:
    step = world.tool("step")

    async def steps(ctx: RunContext) -> str:
        await ctx.ask("Go on?")
        return await ctx.invoke(step)

    return CodeFunction(callable=steps, uses=[step])


def test_another_process_pauses_and_resumes_a_tree(world: World, lives: Lives):
    steps = stepping(world)
    with world.runtime(steps) as runtime:
        node = runtime.invoke(steps)
        question = question_of(runtime)
        lives.ended(pauses, world)
        wait(lambda: [q for q in runtime.questions() if q.kind is QuestionKind.Paused])
        runtime.answer(question.id, "yes")
        wait(lambda: len(runtime.get_subtree(node.id)) == 2)
        assert world.done("step") == 0
        lives.ended(resumes, world)
        assert result(node) == "step 0"


# --- one driver


def drives(world: World) -> None:
    try:
        world.runtime()
    except StoreOwnedError as error:
        world.add("owned", text=str(error))


def test_a_second_runtime_on_the_same_file_is_refused_at_once(world: World, lives: Lives):
    ask = asking(world)
    with world.runtime(ask):
        with pytest.raises(StoreOwnedError, match="run.db"):
            world.runtime(ask)
        lives.ended(drives, world)
        assert len(world.told("owned", "text")) == 1
    with world.runtime(ask) as runtime:  # now it is free
        assert runtime.list_toplevel() == []


def test_a_killed_process_does_not_stay_the_driver(world: World, lives: Lives):
    lives.killed(dies_asking, world)
    ask = asking(world)
    with world.runtime(ask) as runtime:
        answer_in_turn(runtime, "red", "so")
        assert result(runtime.recover()[0]) == "red so"


def test_a_runtime_that_could_not_be_made_does_not_stay_the_driver(world: World):
    one, two = world.tool("same"), world.tool("same")
    with pytest.raises(treefold.TreefoldError):
        world.runtime(one, two)
    with world.runtime() as runtime:
        assert runtime.list_toplevel() == []
