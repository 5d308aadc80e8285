"""Which runs a client is shown: a page of those that match, and how many there are of each kind."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

ASKING: Final = "asking"  # the kind of a run that waits for an answer, whatever its state
PAGE: Final = 100  # runs


@dataclass(frozen=True, slots=True)
class RunQuery:
    """A filter of the list of runs; an empty field matches every run.

    Attributes:
        state: a state, or ``ASKING``.
        function: the name of the function, as the list has it.
        text: in the number, the function, the key or the state.
        page: the position of the page, from 1; the newest runs are on the first.
        newest: the highest id to include, so that pages stay as they are while runs are added.
        about: a run; then its source and its forks are the only others that are included.
    """

    state: str = ""
    function: str = ""
    text: str = ""
    page: int = 1
    newest: int = 0
    about: int = 0


def select(trees: Sequence[Mapping[str, Any]], query: RunQuery) -> dict[str, Any]:
    """Return the page of *trees* that *query* asks for, oldest first as they are, and counts.

    The counts of states are those without the filter by state, and likewise for functions.
    ``first`` is the position of the newest run on the page.
    """
    states: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    matching: list[Mapping[str, Any]] = []
    for tree in _included(trees, query):
        kind, function = _kind(tree), tree["function"]
        has_state, has_function = query.state in {"", kind}, query.function in {"", function}
        if has_function:
            states[kind] += 1
        if has_state:
            functions[function] += 1
        if has_state and has_function:
            matching.append(tree)
    pages = max(1, -(-len(matching) // PAGE))
    page = min(query.page, pages)
    end = len(matching) - (page - 1) * PAGE
    shown = matching[max(0, end - PAGE) : end]
    return {
        "trees": shown,
        "total": len(trees),
        "open": sum(tree["open"] for tree in trees),
        "matching": len(matching),
        "first": (page - 1) * PAGE + 1,
        "page": page,
        "pages": pages,
        "states": dict(states),
        "functions": dict(functions),
    }


def _included(trees: Sequence[Mapping[str, Any]], query: RunQuery) -> Iterator[Mapping[str, Any]]:
    wanted, about = query.text.casefold(), query.about
    source = next((tree["source"] for tree in trees if about and tree["id"] == about), None)
    for tree in trees:
        if query.newest and tree["id"] > query.newest:
            return
        if about and about not in {tree["id"], tree["source"]} and tree["id"] != source:
            continue
        if not wanted or wanted in _text(tree).casefold():
            yield tree


def _kind(tree: Mapping[str, Any]) -> str:
    return ASKING if tree["open"] and tree["questions"] else tree["state"]


def _text(tree: Mapping[str, Any]) -> str:
    return f"{tree['number']} {tree['function']} {tree['key']} {tree['state']}"
