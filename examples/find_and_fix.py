"""Find a bug in a small project, fix it, and see whether the tests agree.

python examples/find_and_fix.py --model anthropic:claude-opus-5-5
python examples/find_and_fix.py --model openai:qwen3@ollama --project path/to/project --approve

It works on a copy in a temporary folder; the tests are what ``python -m unittest`` finds there. The
copy protects the project, not the computer: ``find_bug`` has a shell, and may run any command. With
``--approve`` you are asked before each command and each edit; views of files are not asked about.

What it shows: code and agents that call each other as functions, a result with a type, tools that
are bound to a folder, approval of what models do, an agent that may give up, a budget, and the tree
of it all.

Without ``--model``, ``TREEFOLD_MODEL`` names the model. It has to be one that can call functions;
the small one that runs in process (``local``) cannot.
"""

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, Field

from treefold import (
    HOOK_PRE_TOOL_USE,
    Budget,
    CodeFunction,
    Function,
    HookDecision,
    Node,
    PreToolUseEvent,
    Question,
    RunContext,
    Runtime,
    TreefoldError,
    agent,
    get_model,
)
from treefold.errors import InvalidValueError
from treefold.models import Model, find_model
from treefold.toolbox import Bash, TextEditor, raise_exception
from treefold.views.text import render

PROJECT = Path(__file__).parent / "buggy_project"
TESTS = f"{shlex.quote(sys.executable)} -B -m unittest"  # -B: an edit is never taken for old code
SPENDING = Budget(calls=60, seconds=900)

Approve = Callable[[Question], str]


class Report(BaseModel):
    """What is wrong, and where."""

    file: str = Field(description="The file with the bug, relative to the project.")
    line: int = Field(description="The first line that has to change.")
    cause: str = Field(description="Why the tests fail, in one or two sentences.")
    remedy: str = Field(description="What has to change, in words.")


def bug_fixer(root: Path) -> Function:
    """Return a function that mends the project in *root*; all its tools are bound to that."""
    editor, bash = TextEditor(root), Bash(cwd=root)

    @agent(
        system="You find bugs. You look and try things out, and change nothing.",
        uses=[editor, bash, raise_exception],
        returns=Report,
        max_steps=20,
    )
    def find_bug(output: str) -> str:
        """Find out why the tests of the project fail."""
        return f"The tests of the project in {root} fail:\n\n{output}\n\nFind the bug."

    @agent(
        system="You mend programs, with the smallest change that does it. Tests stay as they are.",
        uses=[editor],
        max_steps=20,
    )
    def write_fix(report: Report) -> str:
        """Change the project as a report says."""
        return f"Mend this bug, then say in one sentence what you did:\n\n{report!r}"

    async def run_tests(ctx: RunContext) -> str:
        """Run the tests. Returns what they printed if they fail, otherwise nothing."""
        output: str = await ctx.invoke(bash, {"command": TESTS})
        return output if "[exit code " in output else ""

    testing = CodeFunction(callable=run_tests, uses=[bash])

    async def fix_bug(ctx: RunContext, rounds: int) -> bool:
        """Look for bugs and fix them until the tests pass, or *rounds* times."""
        for number in range(1, rounds + 1):
            if not (output := await ctx.invoke(testing)):
                break
            print(f"round {number}: the tests fail")
            report = await ctx.invoke(find_bug, {"output": output})
            print(f"  {report.file}, line {report.line}: {report.cause}")
            print(f"  {await ctx.invoke(write_fix, {'report': report})}")
        return not await ctx.invoke(testing)

    return CodeFunction(callable=fix_bug, uses=[testing, find_bug, write_fix])


async def ask_first(event: PreToolUseEvent) -> HookDecision | None:
    """Have a person approve commands and edits; the question shows all of it."""
    match event.tool_name, event.tool_input:
        case "bash", {"command": command}:
            return HookDecision(ask=f"Run this?\n{command}")
        case "text_editor", {"command": command, "path": path, **change} if command != "view":
            lines = "\n".join(f"{name}: {value}" for name, value in change.items())
            return HookDecision(ask=f"{command} {path}?\n{lines}")
        case _:
            return None


def ask_on_terminal(question: Question) -> str:
    """Return what a person types; nothing is a no, and they may say why."""
    return input(f"{question.text}\n[yes / no / deny: why] ").strip() or "no"


def fix(root: Path, model: Model, rounds: int = 3, approve: Approve | None = None) -> bool:
    """Mend the project in *root*, tell what happens, and return whether the tests pass.

    *approve* answers the question that is asked before each command and edit; None asks nothing.
    """
    fix_bug = bug_fixer(root)
    hooks = {HOOK_PRE_TOOL_USE: [ask_first]} if approve else None
    with Runtime([fix_bug], models=model, budget=SPENDING, hooks=hooks) as runtime:
        node = runtime.invoke(fix_bug, {"rounds": rounds})
        try:
            if approve:
                answer_all(runtime, node, approve)
            passed: bool = node.result()
        finally:
            print("", render(runtime.get_view(node.id)), spent(node), "", sep="\n")
    print("the tests pass" if passed else f"the tests still fail after {rounds} rounds")
    return passed


def answer_all(runtime: Runtime, node: Node, approve: Approve) -> None:
    """Answer the questions of a run until it has ended."""
    for _ in runtime.watch(node):  # each time that something has changed
        while questions := runtime.questions():
            try:
                runtime.answer(questions[0].id, approve(questions[0]))
            except InvalidValueError as error:
                print(error)  # and it is asked once more


def spent(node: Node) -> str:
    """Return what a call and all below it have used, in words."""
    cost = "at an unknown price" if node.total_cost is None else f"for ${node.total_cost:.4f}"
    return f"{node.total_usage.total:,} tokens {cost}"


def main() -> int:
    """Do it on a copy of the project that the command line names."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--model", help="such as ollama:qwen3; otherwise TREEFOLD_MODEL")
    parser.add_argument("--project", type=Path, default=PROJECT, help="a folder with unittests")
    parser.add_argument("--rounds", type=int, default=3, help="how often to try")
    parser.add_argument("--approve", action="store_true", help="ask before commands and edits")
    options = parser.parse_args()
    if not options.project.is_dir():
        parser.error(f"there is no folder {options.project}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / options.project.resolve().name
        shutil.copytree(options.project, root, ignore=shutil.ignore_patterns("__pycache__"))
        approve = ask_on_terminal if options.approve else None
        try:
            model = find_model(get_model(options.model, prefer_env=False))
            return 0 if fix(root, model, options.rounds, approve) else 1
        except TreefoldError as error:
            print(f"find_and_fix: {error}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
