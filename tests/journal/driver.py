"""A program that drives a journal, and does what the lines on its stdin say.

Each line is answered by one: what came of it, as Python would write it.
"""

import asyncio
import logging
import queue
import sys
from dataclasses import dataclass
from typing import Any

from treefold import CodeFunction, NodeView, RunContext, Runtime, ToolUse, agent
from treefold.core.fact import replace
from treefold.testing import ScriptedModel

_steps: "queue.SimpleQueue[None]" = queue.SimpleQueue()


@dataclass(frozen=True)
class Report:
    title: str
    pages: tuple[int, ...]


async def ask(ctx: RunContext) -> str:
    return f"{await ctx.ask('Which colour?', ['red', 'blue'])}, {await ctx.ask('Why?')}"


async def again(ctx: RunContext) -> list[str]:
    return [await ctx.ask("More?") for _ in range(5)]


async def steps(ctx: RunContext) -> str:
    for n in range(3):
        await asyncio.to_thread(_steps.get)
        await ctx.send(n)
    said = await ctx.ask("Done?")
    await asyncio.to_thread(_steps.get)
    return said


async def report(ctx: RunContext, title: str) -> Report:
    return Report(title, (1, 2))


asking = CodeFunction(callable=ask, repeatable=True)
asking_again = CodeFunction(callable=again, repeatable=True)
stepping = CodeFunction(callable=steps)
reporting = CodeFunction(callable=report)


async def lenient(ctx: RunContext) -> str:
    node = ctx.invoke(asking)
    try:
        return await node
    except Exception as error:  # noqa: BLE001 - whatever becomes of it
        return type(error).__name__


async def twice(ctx: RunContext) -> list[Any]:
    first = await ctx.invoke(reporting, {"title": "first"})
    return [first.title, await ctx.invoke(asking)]


async def pay(ctx: RunContext) -> str:
    await asyncio.to_thread(_steps.get)
    return "paid"


paying = CodeFunction(callable=pay)
leniently = CodeFunction(callable=lenient, uses=[asking])
doubly = CodeFunction(callable=twice, uses=[reporting, asking])


@agent(uses=[reporting, asking])
def editor(topic: str) -> str:
    """Write about something."""
    return f"Write about {topic}. " + "At length, please. " * 40


def model() -> ScriptedModel:
    calls = [ToolUse("1", "report", {"title": "moss"}), ToolUse("2", "ask", {})]
    return ScriptedModel(calls, "It is written.")


FUNCTIONS = [asking, paying, asking_again, stepping, leniently, doubly, editor]


def plain(view: NodeView) -> NodeView:
    """Return *view* with plain data, and without the number that says when it was looked at."""
    outputs: Any = view.outputs
    if isinstance(outputs, Report):
        outputs = {"title": outputs.title, "pages": list(outputs.pages)}
    children = tuple(map(plain, view.children))
    return replace(view, update_seqnum=0, outputs=outputs, children=children)


def obey(runtime: Runtime, line: str) -> Any:
    word, *rest = line.split()
    match word, *rest:
        case "call", name:
            args = {"topic": "moss"} if name == "editor" else {}
            return runtime.invoke(runtime.invocable_functions[name], args).id
        case "result", id:
            [node] = [node for node in runtime.list_toplevel() if node.id == int(id)]
            return node.result(60)
        case "view", id:
            return plain(runtime.get_view(int(id)))
        case "questions", *_:
            return [question.id for question in runtime.questions()]
        case "answer", id, text:
            return runtime.answer(id, text)
        case "step", *_:
            return _steps.put(None)
        case _:
            raise ValueError(line)


def main(path: str) -> None:
    logging.basicConfig(stream=sys.stderr)
    runtime = Runtime(FUNCTIONS, models=model(), store=path)
    runtime.recover()
    print("ready", flush=True)  # noqa: T201 - it is what the test waits for
    for line in sys.stdin:
        try:
            told = repr(obey(runtime, line))
        except Exception as error:  # noqa: BLE001 - the test is to see it
            told = repr(error)
        print(told, flush=True)  # noqa: T201
    runtime.close()


if __name__ == "__main__":
    main(sys.argv[1])
