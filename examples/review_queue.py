"""Review the Python files of a folder: a queue of turns, in which agents are the tools.

python examples/review_queue.py --model anthropic:claude-opus-5-5 --folder src/package
python examples/review_queue.py --model ollama:qwen3 --yes

What it shows: turns that run agents, a queue to which each review may add closer looks, findings
that later turns get to see, a check that ends the run early, and a person who is asked before an
agent runs a command (``--yes`` allows them all: the shell can do whatever you can).

Without ``--model``, ``TREEFOLD_MODEL`` names the model. It has to be one that can call functions;
the small one that runs in process (``local``) cannot.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from treefold import (
    HOOK_PRE_TOOL_USE,
    Agent,
    AgentFunction,
    Budget,
    ContextItem,
    ContextQueue,
    FromFile,
    Function,
    HookDecision,
    PreToolUseEvent,
    Question,
    Runtime,
    ToolType,
    TreefoldError,
    Turn,
    agent,
    get_model,
    registries,
    tool,
)
from treefold.models import Model, find_model
from treefold.toolbox import bash
from treefold.views.text import render

FOLDER = Path(__file__).parent / "buggy_project"
ENOUGH = 5  # bugs to send it all back without reading on
SPENDING = Budget(calls=200)


class Finding(BaseModel):
    """Something that should change."""

    line: int
    kind: Literal["bug", "style", "question"]
    text: str = Field(description="What is wrong, in one sentence.")


class Review(BaseModel):
    """What came of looking at a file."""

    findings: list[Finding] = Field(description="What is certain.")
    doubts: list[str] = Field(
        default_factory=list, description="What somebody should look into, one sentence each."
    )


def so_far(findings: ContextQueue) -> str:
    """Return what has been found by now, one line each."""
    return "\n".join(str(item.content) for item in findings) or "nothing"


@agent(system="You review code. You report what matters, and only that.", returns=Review)
def review_file(path: str, text: str, findings: ContextQueue) -> str:
    """Review one file."""
    return f"Found so far:\n{so_far(findings)}\n\nReview {path}:\n\n{text}"


@agent(
    system="You settle doubts about code by trying things out in the shell, and change nothing.",
    uses=[bash],
    returns=Review,
    max_steps=20,
)
def look_closer(path: str, text: str, doubt: str, findings: ContextQueue) -> str:
    """Find out whether a doubt about a file is justified."""
    return f"Found so far:\n{so_far(findings)}\n\nIn {path}, is this so: {doubt}\n\n{text}"


@tool(type=ToolType.COMPLETION_CHECK)
async def is_hopeless(findings: ContextQueue) -> bool:
    """Say whether so many bugs were found that reading can stop."""
    bugs = [item for item in findings if item.content["kind"] == "bug"]
    return len(bugs) >= ENOUGH


@tool(uses=[review_file, look_closer])
async def review_folder(folder: str) -> list[dict[str, object]]:
    """Review every Python file of a folder; return what was found."""
    tools: list[Function] = [review_file, look_closer, is_hopeless]
    with registries():  # the name is free again afterwards
        queue = Agent("reviewer", "Reviews code", tools, None, ContextQueue(limit=1000))

    async def line_up(reviewer: AgentFunction, given: Mapping[str, object]) -> None:
        await queue.put(Turn(reviewer, timeout=None, kwargs=given))  # otherwise it has a minute
        await queue.put(Turn(is_hopeless))

    for path in await asyncio.to_thread(lambda: sorted(Path(folder).glob("*.py"))):
        await line_up(review_file, {"path": str(path), "text": FromFile(path)})
    async for turn, review in queue.run():
        if not isinstance(review, Review):
            continue  # it is what the check said
        file = turn.kwargs["path"]
        for finding in review.findings:
            print(f"{file}:{finding.line}: {finding.kind}: {finding.text}")
            await queue.context_queue.append(ContextItem({"file": file, **finding.model_dump()}))
        for doubt in review.doubts:
            print(f"{file}: to be looked into: {doubt}")
            await line_up(look_closer, turn.kwargs | {"doubt": doubt})
    return [item.content for item in queue.context_queue]


async def ask_before_commands(event: PreToolUseEvent) -> HookDecision | None:
    """Have a person decide about each command that an agent wants to run."""
    if event.tool_name != bash.name:
        return None
    return HookDecision(ask=f"An agent wants to run {event.tool_input}")  # escaped: it is a dict


def review(folder: Path, model: Model, *, yes: bool = False) -> list[dict[str, object]]:
    """Review *folder*, put questions to the person at the terminal, and return what was found."""
    hooks = {} if yes else {HOOK_PRE_TOOL_USE: [ask_before_commands]}
    with Runtime([review_folder], models=model, hooks=hooks, budget=SPENDING) as runtime:
        node = runtime.invoke(review_folder, {"folder": str(folder)})
        for view in runtime.watch(node):
            for question in runtime.questions():
                put(question, runtime)
            if view.state.final:
                print("", render(view), "", sep="\n")
        return node.result()


def put(question: Question, runtime: Runtime) -> None:
    """Put *question* to the person at the terminal; who is not there says no."""
    while True:
        print(question.text)
        try:
            said = input(f"{' or '.join(question.choices)}? ")
        except EOFError:
            said = "deny: there is nobody to ask"
        try:
            return runtime.answer(question.id, said)
        except ValueError as error:  # it was no answer; the question stays open
            print(error)


def main() -> int:
    """Review the folder that the command line names."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--model", help="such as ollama:qwen3; otherwise TREEFOLD_MODEL")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the .py files are")
    parser.add_argument("--yes", action="store_true", help="allow every command, ask nobody")
    options = parser.parse_args()
    if not any(options.folder.glob("*.py")):
        parser.error(f"there is no Python file in {options.folder}")
    try:
        found = review(
            options.folder, find_model(get_model(options.model, prefer_env=False)), yes=options.yes
        )
    except TreefoldError as error:
        print(f"review_queue: {error}", file=sys.stderr)
        return 1
    print(f"{len(found)} findings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
