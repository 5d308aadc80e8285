"""Text as it is shown: lines with their numbers, and never too many."""

from treefold.toolbox.editing.document import Document
from treefold.toolbox.editing.lines import LINE_END, start_of


def show_lines(document: Document, first: int, last: int, max_chars: int) -> str:
    """Return the lines from *first* to *last*, and what was left out of them to fit."""
    rows: list[str] = []
    room = max_chars
    start = start_of(document.body, first)
    for number in range(first, last + 1):
        end = LINE_END.search(document.body, start)
        stop = end.start() if end else len(document.body)
        row = f"{number:6}\t{document.decode(document.body[start : min(stop, start + 4 * room)])}"
        if len(row) > room and rows:
            return _joined(rows, _rest(number, last))
        if len(row) > room:
            rows.append(row[:room])
            told = f"[line {number} has {stop - start:,} bytes and was cut off here]"
            return _joined(rows, told, _rest(number + 1, last))
        rows.append(row)
        room -= len(row) + 1
        start = end.end() if end else stop
    return "\n".join(rows)


def _rest(first: int, last: int) -> str:
    if first > last:
        return ""
    which = f"line {first} is" if first == last else f"lines {first} to {last} are"
    return f"[{which} not shown; to see more, view with view_range [{first}, {last}]]"


def _joined(rows: list[str], *notices: str) -> str:
    return "\n".join([*rows, *filter(None, notices)])
