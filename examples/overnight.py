"""Summarise a folder of texts overnight, have a person look, and send what was written.

python examples/overnight.py                  # works until it is done, or until it has to ask
python examples/overnight.py --answer yes     # answers, from here or from any other process
python examples/overnight.py                  # resumes it; and after that only prints the result

What it shows: a job that may be killed at any moment and is started again by the same command. All
that it did is in the journal, one file: no summary is asked for twice, and nothing is sent twice.
A start finds the job by its key, says how far it came, and resumes it. If it was killed
while it sent something, nobody knows whether that went out: then it asks, and ``--answer retry``
is safe, as the receiver is given the same key as the first time.

Without ``--model`` no model is asked: a stand-in repeats how each text begins.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from treefold import NodeView, RunContext, Runtime, TreefoldError, UserText, agent, attach, tool
from treefold.models import Model, find_model
from treefold.testing import ScriptedModel, ScriptedRequest

TEXTS = Path(__file__).parent / "texts"


@tool(repeatable=True)  # reading does no harm: after a crash it is simply done again
async def read_all(folder: str) -> dict[str, str]:
    """Read the texts of a folder; what it gave is what the job is about, whatever changes later."""
    found = await asyncio.to_thread(lambda: sorted(Path(folder).glob("*.txt")))
    return {path.stem: await asyncio.to_thread(path.read_text, "utf-8") for path in found}


@agent(system="You summarise. You answer with one sentence and nothing else.")
def summarise(name: str, text: str) -> str:
    """Summarise a text."""
    return f"Summarise {name} in one sentence:\n\n{text}"


@tool  # not repeatable: if it is in doubt, a person decides
async def send(ctx: RunContext, name: str, summary: str, outbox: str) -> int:
    """Send a summary; return its number."""
    line = f"{ctx.idempotency_key}\t{name}: {summary}"
    return await asyncio.to_thread(receive, Path(outbox), line)


def receive(outbox: Path, line: str) -> int:
    """Stand in for the service that gets it, and takes nothing twice under the same key."""
    key, _, _ = line.partition("\t")
    known = outbox.read_text("utf-8").splitlines() if outbox.exists() else []
    keys = [one.partition("\t")[0] for one in known]
    if key in keys:
        return keys.index(key) + 1
    with outbox.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    return len(keys) + 1


@tool(uses=[read_all, summarise, send])
async def send_summaries(ctx: RunContext, folder: str, outbox: str) -> list[int]:
    """Summarise all texts of a folder, and send the summaries if a person likes them.

    When the job is resumed after a crash this runs from its beginning. What it calls is not done
    again: each call gives at once what it gave the first time, and so does the question.
    """
    texts = await ctx.invoke(read_all, {"folder": folder})
    summaries: dict[str, str] = {}
    for name, text in texts.items():
        summaries[name] = await ctx.invoke(summarise, {"name": name, "text": text})
    listed = "\n".join(f"  {name}: {summary}" for name, summary in summaries.items())
    if await ctx.ask(f"Send these?\n{listed}", ["yes", "no"]) == "no":
        return []
    return [
        await ctx.invoke(send, {"name": name, "summary": summary, "outbox": outbox})
        for name, summary in summaries.items()
    ]


def tell_past(journal: Path) -> None:
    """Print how far an earlier start came; the journal is only read."""
    if not journal.exists():
        print(f"{journal} is new")
        return
    with attach(journal) as observer:
        for tree in observer.trees():
            _, *calls = all_calls(observer.get_view(tree.id))
            counts = Counter((call.fn, str(call.state)) for call in calls)
            told = ", ".join(f"{n} {name} {state}" for (name, state), n in counts.items())
            print(f"{journal} has {tree.key!r}, {tree.state}: {told or 'nothing was called'}")


def all_calls(view: NodeView) -> Iterator[NodeView]:
    """Yield a call and all below it."""
    yield view
    for child in view.children:
        yield from all_calls(child)


def work(journal: Path, night: str, folder: Path, outbox: Path, model: Model) -> None:
    """Do what is left to do of the job of that *night*, as far as it goes without a person."""
    tell_past(journal)
    with Runtime([send_summaries], models=model, store=journal) as runtime:  # resumes it
        args = {"folder": str(folder), "outbox": str(outbox)}
        node = runtime.invoke(send_summaries, args, key=night)  # the one that there is, if any
        for view in runtime.watch(node):
            calls = {call.id for call in all_calls(view)}
            if questions := [one for one in runtime.questions() if one.node_id in calls]:
                print(*(f"{one.text} [{', '.join(one.choices)}]" for one in questions), sep="\n")
                runtime.close()  # they wait in the journal, and this process need not
                return
        print(f"sent: {node.result()}")


def answer(journal: Path, text: str) -> None:
    """Give *text* as the answer to all that is asked; whoever runs the job need not be there."""
    with attach(journal) as observer:
        for question in observer.questions():
            observer.answer(question.id, text)
            print(f"{text}: {question.text}")


def begin(request: ScriptedRequest) -> str:
    """Stand in for a model: repeat the first sentence below the title."""
    prompt = next(part.text for part in request.transcript if isinstance(part, UserText))
    _, _title, text = prompt.split("\n\n", 2)
    return f"{' '.join(text.split()).partition('. ')[0]}."


def main() -> int:
    """Do what the command line says."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--journal", type=Path, default=Path("overnight.db"))
    parser.add_argument("--night", default="tonight", help="the name of the job; another is new")
    parser.add_argument("--folder", type=Path, default=TEXTS, help="where the .txt files are")
    parser.add_argument("--outbox", type=Path, default=Path("outbox.txt"))
    parser.add_argument("--model", help="such as anthropic:claude-opus-5-5, or local")
    parser.add_argument("--answer", help="answer what the job has asked, and do nothing else")
    options = parser.parse_args()
    if not any(options.folder.glob("*.txt")):
        parser.error(f"there is no .txt file in {options.folder}")
    try:
        if options.answer is not None:
            answer(options.journal, options.answer)
        else:
            model = find_model(options.model) if options.model else ScriptedModel(begin)
            work(options.journal, options.night, options.folder, options.outbox, model)
    except TreefoldError as error:
        print(f"overnight: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
