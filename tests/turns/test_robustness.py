"""What breaks turns: odd tools, hooks and values, loops that end, data from elsewhere."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import date
from typing import Any

import pytest

from treefold import (
    Agent,
    AgentRegistry,
    CancellationException,
    CodeFunction,
    ContextItem,
    ContextPool,
    ContextQueue,
    RunContext,
    StopReason,
    ToolHook,
    ToolType,
    Turn,
    TurnTimeoutError,
    hook,
    registries,
    tool,
)
from treefold.core.errors import (
    CompletionCheckReturnError,
    DefinitionError,
    InvalidValueError,
    SerializationError,
    UsageError,
)

# Tools


async def test_a_stream_that_cannot_be_called_frees_its_lock_and_tells_its_hooks():
    heard: list[Exception] = []

    @tool(lock=True)
    async def count(to: int) -> AsyncIterator[int]:
        for n in range(to):
            yield n

    @count.on_error
    async def keep(exc: Exception) -> None:
        heard.append(exc)

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'to'"):
        async for _ in count():  # pyright: ignore
            pass
    assert count.lock is not None
    assert not count.lock.locked()
    assert len(heard) == 1
    assert [n async for n in count(2)] == [0, 1]


async def test_values_sent_by_several_tasks_all_arrive():
    @tool
    async def fan_out(ctx: RunContext) -> AsyncIterator[Any]:
        async with asyncio.TaskGroup() as group:
            for n in range(5):
                group.create_task(ctx.send(n))
        yield "end"

    async with asyncio.timeout(60):
        values = [value async for value in Turn(fan_out).yielding()]
    assert values == [0, 1, 2, 3, 4, "end"]


def test_what_is_no_tool_is_refused_with_a_remedy():
    class Thing:
        async def method(self, n: int) -> int:
            return n

    with pytest.raises(DefinitionError, match="'method' is a method: make the tool of a bound one"):
        tool(Thing.method)
    assert asyncio.run(tool(Thing().method)(3)) == 3

    async def act() -> None: ...

    for wrong, words in [
        ({"lock": "yes"}, "'lock' is an option of @tool and must be True or False"),
        ({"type": "json"}, "'type' is an option of @tool and must be a ToolType"),
        ({"uses": ["fetch"]}, "'uses' is an option of @tool and must be a list of Functions"),
        ({"repeatable": 1}, "'repeatable' is an option of @tool and must be True or False"),
        ({"tags": "io"}, "must be a list or set of strings, not 'io'"),
        ({"tags": [1]}, "must be a list or set of strings"),
        ({"speed": 3}, "'speed' is neither an option of @tool nor a parameter .* no arguments"),
        ({"repeatble": True}, "'repeatble' is neither .* did you mean 'repeatable'?"),
    ]:
        with pytest.raises(TypeError, match=words):
            tool(**wrong)(act)  # pyright: ignore


async def test_a_locked_tool_that_calls_itself_is_told_so():
    @tool(lock=True)
    async def recurse(n: int) -> int:
        return await recurse(n - 1) if n else 0

    async with asyncio.timeout(60):
        assert await recurse(0) == 0
        with pytest.raises(UsageError, match="'recurse' has lock=True and called itself"):
            await recurse(1)
        assert await recurse(0) == 0


@pytest.mark.parametrize("way", ["turn", "invoke", "task"])
async def test_a_locked_tool_that_calls_itself_in_a_roundabout_way_is_told_so(way: str):
    @tool(lock=True)
    async def recurse(ctx: RunContext, n: int) -> Any:
        if n == 0:
            return 0
        if way == "turn":
            return await Turn(recurse, kwargs={"n": n - 1}).returning()
        if way == "invoke":
            return await ctx.invoke(recurse, {"n": n - 1})
        async with asyncio.TaskGroup() as group:
            return await group.create_task(recurse(n=n - 1))  # pyright: ignore

    recurse.uses_recursion = True
    async with asyncio.timeout(60):
        with pytest.raises((UsageError, ExceptionGroup)) as caught:
            await Turn(recurse, kwargs={"n": 1}).returning()
        (error,) = getattr(caught.value, "exceptions", [caught.value])
        assert "called itself" in str(error)
        assert await Turn(recurse, kwargs={"n": 0}).returning() == 0


async def test_a_value_sent_from_a_task_of_its_own_does_not_wait_for_a_consumer_that_left():
    sent: list[str] = []

    @tool
    async def stream(ctx: RunContext) -> AsyncIterator[str]:
        async def send() -> None:
            await ctx.send("from a task")
            sent.append("returned")

        group.create_task(send())
        yield "from the stream"
        await asyncio.Event().wait()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        values = Turn(stream).yielding()
        await anext(values)
        await values.aclose()
    assert sent == ["returned"]


async def test_a_tool_that_is_not_awaited_is_named(recwarn: pytest.WarningsRecorder):
    @tool
    async def forgotten() -> None: ...

    with pytest.warns(RuntimeWarning, match="coroutine 'forgotten' was never awaited"):
        forgotten()  # pyright: ignore


async def test_subtools_can_be_made_without_parentheses():
    @tool
    async def parent() -> None: ...

    @parent.subtool
    async def child() -> str:
        return "child"

    assert await Turn("parent.child").returning() == await child() == "child"


async def test_a_misspelt_argument_is_mentioned_when_another_is_missing():
    @tool
    async def act(name: str) -> str:
        return name

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'") as caught:
        await Turn(act, kwargs={"nmae": 1, "x": 2}).returning()
    assert caught.value.__notes__ == ["act does not take 'nmae', 'x', which the turn gave"]


def test_a_name_that_is_nearly_right_is_suggested():
    @tool
    async def fetch() -> None: ...

    with pytest.raises(KeyError, match="no tool is called 'fecth'; did you mean 'fetch'?"):
        Turn("fecth")
    with pytest.raises(ValueError, match="free it with ToolRegistry.unregister.'fetch'"):
        tool(fetch.fn)


def test_options_may_be_given_as_any_iterable():
    @tool
    async def used() -> None: ...

    @tool(uses=(function for function in [used]), tags=(tag for tag in ["a"]))
    async def user() -> None: ...

    assert (user.uses, user.tags) == ((used,), {"a"})


async def test_the_context_is_missing_where_there_is_no_agent():
    @tool
    async def look(queue: ContextQueue) -> int:
        return len(queue)

    @tool
    async def look_if_there(queue: ContextQueue | None = None) -> bool:
        return queue is None

    with pytest.raises(TypeError, match="'look' wants a ContextQueue as 'queue'.*through an Agent"):
        await look()  # pyright: ignore
    assert await look(queue=ContextQueue(1)) == 0
    assert await look_if_there()


# Turns


async def test_arguments_that_come_late_count_towards_the_timeout():
    @tool
    async def act(x: str) -> str:
        return x

    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    async def quick() -> str:
        return "in time"

    async with asyncio.timeout(60):
        turn = Turn(act, timeout=0.01, kwargs={"x": slow})
        with pytest.raises(TurnTimeoutError):
            await turn.returning()
        assert turn.stop_reason is StopReason.TIMEOUT
        assert await Turn(act, timeout=60, kwargs={"x": quick}).returning() == "in time"


async def test_a_timeout_error_of_a_late_argument_is_an_error_like_any_other():
    @tool
    async def act(x: str) -> str:
        return x

    def fail() -> str:
        raise TimeoutError("of its own")

    turn = Turn(act, kwargs={"x": fail})
    with pytest.raises(TimeoutError, match="of its own"):
        await turn.returning()
    assert turn.stop_reason is StopReason.ERROR


async def test_classes_and_functions_with_parameters_are_values():
    @tool
    async def show(*, kind: type, key: Any, other: Any) -> Any:
        return kind, key(2), other

    def twice(n: int) -> int:
        return 2 * n

    found = await Turn(show, kwargs={"kind": dict, "key": twice, "other": show}).returning()
    assert found == (dict, 4, show)


@pytest.mark.parametrize("timeout", ["60", -1, float("nan")])
def test_what_is_no_timeout_is_refused(timeout: Any):
    @tool
    async def act() -> None: ...

    with pytest.raises(InvalidValueError, match="in seconds or None"):
        Turn(act, timeout=timeout)


def test_a_turn_whose_stream_was_left_on_a_loop_that_is_gone_can_run_again():
    @tool
    async def count() -> AsyncIterator[int]:
        yield 1
        yield 2

    turn = Turn(count)
    loop = asyncio.new_event_loop()
    stream = turn.yielding()
    assert loop.run_until_complete(anext(stream)) == 1
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    async def again() -> list[int]:
        async with asyncio.timeout(60):
            return [value async for value in turn.yielding()]

    assert asyncio.run(again()) == [1, 2]


async def test_a_cancel_during_the_last_hook_is_recorded():
    waiting = asyncio.Event()

    @tool
    async def act() -> str:
        return "value"

    turn = Turn(act)

    @turn.on_complete
    async def wait(turn: Turn, stop_reason: StopReason) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(turn.returning())
        await waiting.wait()
        task.cancel()
    assert turn.stop_reason is StopReason.CANCELLED


# Hooks


def test_a_hook_for_something_that_is_no_hook_type_is_refused():
    async def act() -> None: ...

    for wrong in ("before_invoke", act):
        with pytest.raises(DefinitionError, match="@hook needs a hook type, got"):
            hook(wrong)  # pyright: ignore
    for wrong in ([], ["before_invoke"]):
        with pytest.raises(DefinitionError, match="hook 'act' needs hook types"):
            hook(wrong)(act)  # pyright: ignore

    def sync() -> None: ...

    with pytest.raises(DefinitionError, match="must be an 'async def'"):
        hook(ToolHook.ON_ERROR)(sync)  # pyright: ignore


async def test_a_hook_is_given_only_the_keywords_that_it_takes():
    heard: list[Any] = []

    @tool(key="secret")
    async def act(ctx: RunContext, a: int, key: str, b: int = 2) -> int:
        return a + b

    @act.before_invoke
    async def some(a: int) -> None:
        heard.append(a)

    @act.before_invoke
    async def defaults(a: int, b: int) -> None:
        heard.append((a, b))

    @act.before_invoke
    async def everything(**kwargs: Any) -> None:
        heard.append(sorted(kwargs))

    assert await Turn(act, kwargs={"a": 1}).returning() == 3
    assert heard == [1, (1, 2), ["a", "b", "ctx", "key"]]


async def test_a_hook_that_is_attached_elsewhere_is_called_there_too():
    heard: list[str] = []

    @hook(ToolHook.AFTER_INVOKE)
    async def note(*args: Any, **kwargs: Any) -> None:
        heard.append("note")

    @tool
    async def fail() -> None:
        raise ZeroDivisionError

    fail.on_error(note)
    with pytest.raises(ZeroDivisionError):
        await fail()
    assert heard == ["note"]


# Agents and context


async def test_what_is_no_turn_is_refused():
    @tool
    async def act() -> None: ...

    @tool
    async def count() -> AsyncGenerator[int, None]:
        yield 1

    agent = Agent("a", "b", [])
    with pytest.raises(InvalidValueError, match="3 is not a Turn"):
        await agent.put(3)  # pyright: ignore
    with pytest.raises(InvalidValueError, match="does not have tool 'act', .*; it has none"):
        await agent.put(Turn(act))
    for wrong, words in [
        ([print], "agent 'c' needs a Function, .* decorate it with @tool"),
        (["act"], "give the function itself, or ToolRegistry.get.'act'"),
        ([act()], "give the function itself: 'act', without calling it"),
        ([count()], "<async generator count> is not: give the function itself: 'count', without"),
        (act, "agent 'c' needs a list of tools"),
    ]:
        with pytest.raises(TypeError, match=words):
            Agent("c", "d", wrong)  # pyright: ignore
    with pytest.raises(TypeError, match="agent 'c' needs a ContextPool, got <ContextQueue 0 of 3>"):
        Agent("c", "d", [act], ContextQueue(3))  # pyright: ignore


async def test_a_completion_check_without_an_answer_raises_before_it_yields():
    @tool(type=ToolType.COMPLETION_CHECK)
    async def check() -> bool:
        return 1  # pyright: ignore

    agent = Agent("a", "b", [check])
    await agent.put(Turn(check))
    values: list[Any] = []
    with pytest.raises(CompletionCheckReturnError, match="'check' returned 1; it must return True"):
        values.extend([value async for value in agent.run()])
    assert values == []


async def test_a_tool_may_take_its_own_turn_out_of_the_queue():
    @tool
    async def quit() -> str:
        agent.remove(agent.turns[0])
        return "done"

    agent = Agent("a", "b", [quit])
    await agent.put(Turn(quit))
    assert [value async for _, value in agent.run()] == ["done"]
    with pytest.raises(InvalidValueError, match="is not in the queue"):
        agent.remove(Turn(quit))


async def test_limits_hold_while_hooks_take_their_time():
    pool, queue = ContextPool(limit=1), ContextQueue(limit=1)
    evicted: list[str] = []

    @pool.before_add
    @queue.before_append
    async def dawdle(*args: Any) -> None:
        await asyncio.sleep(0)

    @pool.on_evict
    async def keep(pool: ContextPool, item: ContextItem) -> None:
        await asyncio.sleep(0)
        evicted.append(str(item.id))

    async with asyncio.TaskGroup() as group:
        for n in range(5):
            group.create_task(pool.add(ContextItem(n, id=str(n))))
            group.create_task(queue.append(ContextItem(n)))
    assert (len(pool), len(queue), len(evicted)) == (1, 1, 4)


# Saving


async def test_outputs_of_every_kind_come_back_as_what_they_were():
    @tool
    async def plain() -> Any: ...

    @tool
    async def stream() -> AsyncIterator[Any]:
        yield ContextItem("a", id="x")
        yield Turn(plain)
        yield {"$turn": "not ours"}

    items = [ContextItem(1), {"$plain": 2}, {"$context_item": 3}, [4]]
    turn = Turn(plain)
    turn.output = items
    again = Turn.from_dict(json.loads(json.dumps(turn.to_dict())))
    assert again.output == items

    streamed = Turn(stream)
    _ = [value async for value in streamed.yielding()]
    item, queued, lookalike = Turn.from_dict(json.loads(json.dumps(streamed.to_dict()))).output
    assert (item, queued.tool, lookalike) == (
        ContextItem("a", id="x"),
        plain,
        {"$turn": "not ours"},
    )


@pytest.mark.parametrize(
    "value", [object(), float("nan"), float("inf"), iter([1]), lambda: 1, {1: object()}, b"\xff"]
)
def test_an_argument_without_a_json_form_is_named(value: Any):
    @tool
    async def act(x: Any) -> None: ...

    with pytest.raises(SerializationError, match="argument 'x' of <Turn of act>"):
        Turn(act, kwargs={"x": value}).to_dict()
    with pytest.raises(TypeError, match="argument 0 of <Turn of act>"):
        Turn(act, args=[value]).to_dict()


def test_values_keep_their_types_only_where_the_annotation_says_so():
    @tool
    async def act(day: date, n: int, free: Any = None) -> None: ...

    kwargs = {"day": date(2026, 1, 2), "n": "5", "free": [1, {"a": None}]}
    again = Turn.from_dict(json.loads(json.dumps(Turn(act, kwargs=kwargs).to_dict())))
    assert again.kwargs == kwargs  # "5" was given, and "5" it stays


def test_what_could_not_be_found_again_is_not_saved():
    function = CodeFunction(name="lost", callable=lambda ctx: None)
    with pytest.raises(SerializationError, match="<CodeFunction lost> is not in the ToolRegistry"):
        Turn(function).to_dict()
    with pytest.raises(SerializationError, match="<CodeFunction lost>"):
        Agent("a", "b", [function]).to_dict()


def test_bad_data_leaves_the_agent_that_has_the_name():
    @tool
    async def act() -> None: ...

    agent = Agent("a", "b", [act])
    good = agent.to_dict()
    for bad in ({}, good | {"queue": [{}]}, good | {"tool_names": ["nothing"]}, {"name": "a"}):
        with pytest.raises((InvalidValueError, KeyError)):
            Agent.from_dict(bad)
        assert AgentRegistry.get("a") is agent
    for kind in (Turn, ContextItem, ContextQueue, ContextPool):
        with pytest.raises(InvalidValueError, match=f"not a saved {kind.__name__}"):
            kind.from_dict({})


def test_a_scope_also_covers_registries_that_are_still_unused():
    script = (
        "from treefold import registries\n"
        "with registries():\n"
        "    from treefold import Agent, AgentRegistry, ToolRegistry, tool\n"
        "    @tool\n"
        "    async def leak(): ...\n"
        "    Agent('a', 'b', [leak])\n"
        "print(ToolRegistry.all(), AgentRegistry.all())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[] []\n", "")


# Context and pausing


async def test_everything_that_is_evicted_is_told_once():
    pool, queue = ContextPool(limit=1), ContextQueue(limit=1)
    evicted: list[Any] = []

    @pool.on_evict
    @queue.on_evict
    async def keep(owner: Any, item: ContextItem) -> None:
        await asyncio.sleep(0)
        evicted.append(item.content)

    async with asyncio.TaskGroup() as group:
        for n in range(4):
            group.create_task(pool.add(ContextItem(n, id=str(n))))
            group.create_task(queue.append(ContextItem(n)))
    left = [item.content for item in (*pool, *queue)]
    assert sorted([*evicted, *left]) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_a_pause_asked_for_before_a_turn_holds_that_turn():
    ran: list[str] = []

    @tool
    async def act() -> None:
        ran.append("act")

    agent = Agent("a", "b", [act])
    await agent.put(Turn(act))
    paused = asyncio.Event()

    @agent.before_turn
    async def pause(agent: Agent) -> None:
        agent.pause()
        paused.set()

    async def run() -> None:
        async for _ in agent.run():
            pass

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(run())
        await paused.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (ran, agent.is_paused) == ([], True)
        agent.resume()
    assert ran == ["act"]


async def test_streams_receive_the_context_of_their_agent_too():
    @tool
    async def stream(seen: ContextQueue, pool: ContextPool) -> AsyncIterator[Any]:
        yield ContextItem("first")
        yield len(seen)
        yield ContextItem("named", id="n")
        yield len(pool)

    agent = Agent("a", "b", [stream])
    await agent.put(Turn(stream))
    assert [value async for _, value in agent.run()] == [1, 1]
    assert ContextQueue.current() is None  # and nobody else


async def test_a_foreign_tool_of_the_same_name_is_refused():
    @tool
    async def act() -> str:
        return "own"

    with registries():

        async def elsewhere() -> str:
            return "foreign"

        elsewhere.__name__ = "act"
        foreign = tool(elsewhere)
    agent = Agent("a", "b", [act])
    with pytest.raises(InvalidValueError, match="or has another one of that name"):
        await agent.put(Turn(foreign))


async def test_a_hook_that_is_attached_and_global_is_called_once():
    heard: list[str] = []

    @hook(ToolHook.AFTER_INVOKE)
    async def note(result: Any) -> None:
        heard.append(result)

    @tool
    async def act() -> str:
        return "done"

    act.after_invoke(note)
    await act()
    assert heard == ["done"]


# More of turns


async def test_the_time_that_late_arguments_take_is_missing_afterwards():
    @tool
    async def wait(x: str) -> None:
        await asyncio.sleep(0.2)

    async def slow() -> str:
        await asyncio.sleep(0.2)
        return "late"

    with pytest.raises(TurnTimeoutError):
        await Turn(wait, timeout=0.3, kwargs={"x": slow}).returning()


async def test_a_timeout_further_down_is_an_error_of_the_turn():
    @tool
    async def inner() -> None:
        await asyncio.Event().wait()

    @tool(uses=[inner])
    async def outer(ctx: RunContext) -> None:
        await ctx.invoke(inner, timeout=0.01)

    turn = Turn(outer)
    with pytest.raises(TimeoutError) as caught:
        await turn.returning()
    assert not isinstance(caught.value, TurnTimeoutError)
    assert turn.stop_reason is StopReason.ERROR


async def test_a_turn_whose_node_was_cancelled_is_cancelled():
    @tool
    async def act(ctx: RunContext) -> None:
        ctx.node.cancel("from the viewer")
        await asyncio.sleep(0)

    turn = Turn(act)
    with pytest.raises(CancellationException, match="from the viewer"):
        await turn.returning()
    assert turn.stop_reason is StopReason.CANCELLED


async def test_a_turn_of_another_function_checks_its_arguments():
    def twice(ctx: RunContext, n: int) -> int:
        return 2 * n

    function = CodeFunction(callable=twice)
    assert await Turn(function, kwargs={"n": "4", "unknown": 1}).returning() == 8
    with pytest.raises(ValueError, match="argument 'n': Input should be a valid integer"):
        await Turn(function, kwargs={"n": "four"}).returning()


def test_a_tool_that_wants_a_context_can_be_run_by_asyncio_run():
    @tool
    async def act(ctx: RunContext, n: int) -> int:
        return n

    assert asyncio.run(act(n=3)) == 3  # pyright: ignore


async def test_keyword_only_parameters_are_not_filled_by_position():
    @tool
    async def only(*, a: int = 0) -> int:
        return a

    @tool
    async def rest(*values: int, a: int = 0) -> tuple[Any, int]:
        return values, a

    assert await only(5) == 0  # pyright: ignore
    assert await rest(1, 2, 3) == ((1, 2, 3), 0)
