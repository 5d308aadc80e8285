"""Answer a question from a folder of texts: split it, look up the parts, conclude, and write it up.

python examples/research.py --model anthropic:claude-opus-5-5 --second openai:gpt-6.1-sol
python examples/research.py --model ollama:qwen3 --folder my/notes "What did we decide on hosting?"

What it shows: calls in parallel, an ensemble of two models that reconciles what they conclude, an
agent that looks again at its own answer, bounds on what is spent and on how many requests are under
way, and progress as it happens.

Without ``--model`` it asks the small model that runs in process (``treefold local fetch``). That
one cannot call functions, so it never sees the texts, and what it says has little to do with them;
most likely the example ends by saying that there was no answer.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from treefold import (
    Budget,
    CodeFunction,
    Ensemble,
    Function,
    Limits,
    NodeState,
    NodeView,
    RunContext,
    Runtime,
    ThinkMore,
    TreefoldError,
    agent,
)
from treefold.models import Model, find_model

TEXTS = Path(__file__).parent / "texts"
QUESTION = "When can a tide mill grind, and why is that never the same from day to day?"
SPENDING = Budget(calls=60, tokens=300_000, seconds=900)  # of one run, all calls together

Questions = Annotated[list[str], Field(min_length=1, max_length=4)]


@agent(system="You plan research.", returns=Questions)
def split(question: str) -> str:
    """Split a question into parts that can be looked up one by one."""
    return f"Split this into one to four questions that can be looked up one by one: {question}"


@agent(system="You give the conclusion that the notes allow, in two sentences at most.")
def conclude(question: str, notes: str) -> str:
    """Conclude from notes what the answer to a question is."""
    return f"{question}\n\nThe notes:\n{notes}"


@agent(system="You write plainly. You add nothing that is not in the notes or the conclusion.")
def digest(question: str, notes: str, conclusion: str) -> str:
    """Write up the answer to a question."""
    return (
        f"Write a short paragraph that answers: {question}\n\n"
        f"The conclusion:\n{conclusion}\n\nThe notes behind it:\n{notes}"
    )


conclude_together = Ensemble(conclude, {"first": 1, "second": 1})  # names that the runtime knows
polished_digest = ThinkMore(digest)


def researcher(folder: Path) -> Function:
    """Return a function that answers questions from the texts in *folder*."""

    def search(ctx: RunContext, word: str) -> list[str]:
        """Return the names of the texts that have a word in them; an empty word is in all."""
        found = {path.name: path.read_text("utf-8") for path in folder.glob("*.txt")}
        return sorted(name for name, text in found.items() if word.lower() in text.lower())

    def read(ctx: RunContext, name: str) -> str:
        """Return a text by its name."""
        names = {path.name: path for path in folder.glob("*.txt")}  # and nothing from elsewhere
        if name not in names:
            raise FileNotFoundError(f"there is no text {name}; there are {', '.join(names)}")
        return names[name].read_text("utf-8")

    @agent(
        system="You answer from the texts only, and name the text that you have it from.",
        uses=[CodeFunction(callable=search), CodeFunction(callable=read)],
        budget=Budget(calls=8, last_call=True),  # then it has to say what it has
    )
    def look_up(question: str) -> str:
        """Answer a question from the texts."""
        return f"Search the texts, read what may help, and answer: {question}"

    async def research(ctx: RunContext, question: str) -> str:
        """Answer a question of several parts."""
        first, *more = await ctx.invoke(split, {"question": question})
        node = ctx.invoke(look_up, {"question": first})
        nodes = [node, *(ctx.invoke(look_up, {"question": one}, tied_with=node) for one in more)]
        notes = "\n".join([f"- {node.inputs['question']}\n  {await node}" for node in nodes])
        known = {"question": question, "notes": notes}
        conclusion = await ctx.invoke(conclude_together, known)
        return await ctx.invoke(polished_digest, known | {"conclusion": conclusion})

    uses: list[Function] = [split, look_up, conclude_together, polished_digest]
    return CodeFunction(callable=research, uses=uses)


def answer(question: str, folder: Path, models: Mapping[str, Model]) -> str:
    """Answer *question*, and tell what happens meanwhile; *models* has a "first" and a "second"."""
    research = researcher(folder)
    known = {"default": models["first"], **models}
    with Runtime([research], models=known, limits=Limits(3), budget=SPENDING) as runtime:
        node = runtime.invoke(research, {"question": question})
        told: dict[str, NodeState] = {}
        for view in runtime.watch(node):  # each time that something has changed, until it has ended
            tell(view, told)
        text: str = node.result()
    print(f"\n{text}\n\n{node.total_usage.total:,} tokens")
    return text


def tell(view: NodeView, told: dict[str, NodeState]) -> None:
    """Print what has begun or ended since it was last told."""
    news = told.get(view.path) is not view.state
    told[view.path] = view.state
    line = f"{view.path:<8}{view.state.value:<9}{view.fn} {view.model or ''}".rstrip()
    if news and view.state is NodeState.Running:
        print(line)
    for child in view.children:
        tell(child, told)
    if news and view.state.final:
        print(line)


def main() -> int:
    """Answer the question on the command line."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--model", default="local", help="such as openai:qwen3@ollama")
    parser.add_argument("--second", help="another one for the ensemble; otherwise the same")
    parser.add_argument("--folder", type=Path, default=TEXTS, help="where the .txt files are")
    options = parser.parse_args()
    if not any(options.folder.glob("*.txt")):
        parser.error(f"there is no .txt file in {options.folder}")
    try:
        first = find_model(options.model)
        second = find_model(options.second) if options.second else first
        answer(options.question, options.folder, {"first": first, "second": second})
    except TreefoldError as error:
        print(f"research: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
