"""Write a digest of a folder of texts: code and agents in one tree. ``make demo`` runs it.

treefold run examples/digest.py:digest --model local --store run.db

Code reads the texts. An agent keeps one sentence of each; code looks whether every word of it is in
the text, has a second agent try if not, and takes the text's own first sentence in the end. An
ensemble, the same agent asked twice at a temperature at which its answers differ, makes one
paragraph of the notes, and a last agent chooses how the digest begins. The result says which part
is whose: the prompts are made for the small model that runs here (``treefold local fetch``), and
that one is easily wrong.

It can be killed at any moment; the same command resumes it, and asks for no answer twice.
"""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill, indent

from pydantic import BaseModel

from treefold import Ensemble, EnsembleError, Function, NoAnswerError, RunContext, agent, tool
from treefold.models import ModelSettings

EXACTLY = ModelSettings(temperature=0, thinking=0, max_tokens=1000)
# With 0.1 the small model says the same twice; the higher, the more of it is not in the notes.
LOOSELY = ModelSettings(temperature=0.3, thinking=0, max_tokens=300)
KEEP = "Keep the one sentence of this text that says most, and leave out the rest."
MOSTLY = 0.75  # of the words


class Note(BaseModel):
    """One sentence about one text."""

    title: str
    sentence: str
    by_model: bool


@tool(repeatable=True)
async def read_all(folder: str) -> dict[str, str]:
    """Return the texts of a folder, by title."""
    paths = await asyncio.to_thread(lambda: sorted(Path(folder).glob("*.txt")))
    if not paths:
        raise FileNotFoundError(f"there is no .txt file in {folder}")
    texts = [await asyncio.to_thread(path.read_text, "utf-8") for path in paths]
    parts = [text.partition("\n\n") for text in texts]
    return {title.strip(): " ".join(text.split()) for title, _, text in parts}


@agent(settings=EXACTLY)
def summarise(text: str) -> str:
    """Keep one sentence of a text."""
    return f"{KEEP}\n\n{text}"


@agent(settings=EXACTLY)
def shorten(text: str) -> str:
    """Shorten a text to one sentence."""
    return f"{text}\n\nShorten this text to one sentence."


@tool(uses=[summarise, shorten], repeatable=True)
async def note(ctx: RunContext, title: str, text: str) -> Note:
    """Have a text summarised, and believe only what has no other words than the text."""
    for agent_ in (summarise, shorten):
        sentence = first_sentence(await answer(ctx, agent_, {"text": text}))
        if share_in(sentence, text) == 1:
            return Note(title=title, sentence=sentence, by_model=True)
    return Note(title=title, sentence=first_sentence(text), by_model=False)


@agent(settings=LOOSELY)
def write(notes: str) -> str:
    """Make a paragraph of notes."""
    return f"Write one paragraph that has all of these notes in it.\n\n{notes}"


@agent(settings=EXACTLY)
def begin(text: str) -> str:
    """Choose the sentence that a digest begins with."""
    return f"{KEEP}\n\n{text}"


write_together = Ensemble(write, {"default": 2}, "write_together")


@tool(uses=[read_all, note, write_together, begin])
async def digest(ctx: RunContext, folder: str = "examples/texts") -> str:
    """Write a digest of the texts in a folder, and say who wrote which part."""
    texts = await ctx.invoke(read_all, {"folder": folder})
    first, *more = [{"title": title, "text": text} for title, text in texts.items()]
    node = ctx.invoke(note, first)
    nodes = [node, *(ctx.invoke(note, args, tied_with=node) for args in more)]
    notes = [await node for node in nodes]
    sentences = [one.sentence for one in notes]
    listed = "\n".join(f"- {sentence}" for sentence in sentences)
    written = await answer(ctx, write_together, {"notes": listed})
    lead = await answer(ctx, begin, {"text": " ".join(sentences)})
    return laid_out(first_sentence(lead), sentences_of(written), notes)


async def answer(ctx: RunContext, function: Function, args: Mapping[str, str]) -> str:
    """Return what an agent said; a small one may repeat itself until it is cut off."""
    try:
        return await ctx.invoke(function, args)
    except NoAnswerError:
        return ""
    except EnsembleError as error:  # nobody could reconcile the answers, but there are some
        return next(iter(getattr(error, "candidates", ())), "")


def laid_out(lead: str, written: list[str], notes: list[Note]) -> str:
    """Return the digest as people read it, with a line below each part that says whose it is."""
    known = " ".join(one.sentence for one in notes)
    parts: list[str] = []
    if share_in(lead, known) == 1:
        parts += [paragraph(lead), "    chosen by the model out of the notes", ""]
    doubtful = [sentence for sentence in written if share_in(sentence, known) < MOSTLY]
    if len(doubtful) * 2 < len(written):
        marked = [f"{one} (?)" if one in doubtful else one for one in written]
        whose = "written by the model from the notes" + ("; (?) is not in them" if doubtful else "")
        parts += [paragraph(" ".join(marked)), f"    {whose}", ""]
    else:
        parts += ["    (what the model wrote from the notes had little to do with them)", ""]
    width = max(len(one.title) for one in notes) + 2
    for one in notes:
        mark = "" if one.by_model else " *"
        parts.append(paragraph(one.sentence + mark, f"  {one.title:{width}}"))
    others = "" if all(one.by_model for one in notes) else "; * is the text's own: the model failed"
    return "\n".join([*parts, f"    the first sentence that the model kept of each text{others}"])


def paragraph(text: str, begin: str = "  ") -> str:
    """Return *text* in lines, below each other."""
    return begin + indent(fill(text, 98 - len(begin)), " " * len(begin)).strip()


def sentences_of(text: str) -> list[str]:
    """Return the whole sentences of a text."""
    return re.findall(r'[^\s"“].*?[.!?](?=["”]?(?:\s|$))', " ".join(text.split()))


def first_sentence(text: str) -> str:
    """Return the first whole sentence, however a model has introduced it."""
    found = sentences_of(text.lstrip("-* ").removeprefix("The original text is:"))
    return found[0] if found else ""


def share_in(sentence: str, text: str) -> float:
    """Return how many of the longer words and the numbers of a sentence are in a text, too."""
    known = set(long_words(text))
    words = long_words(sentence)
    return sum(word in known for word in words) / len(words) if words else 0.0


def long_words(text: str) -> list[str]:
    """Return the numbers, and the beginnings of words: "sail" is in "sailed"."""
    words = re.findall(r"\w+", text.lower())
    return [word[:5] for word in words if len(word) > 3 or word.isdigit()]
