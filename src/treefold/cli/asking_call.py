"""The call that asks a question, as people are shown it: its path, its arguments and its caller."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TextIO

from treefold.cli.form_prompt import form_lines
from treefold.cli.output import aligned, columns
from treefold.cli.word_wrap import WordWrap
from treefold.core.address import question_address
from treefold.core.frames import Frame
from treefold.core.moments import in_words
from treefold.core.question import Question, QuestionKind
from treefold.core.truncation import truncate
from treefold.views import data
from treefold.views.text import printable, readable

_HEAD: Final = ("PATH", "CALL", "CALLED BY")
_LONGEST_CALL: Final = 60  # characters in a table


@dataclass(frozen=True, slots=True)
class AskingCall:
    """A question, the call that waits for its answer, and the call that made that one."""

    question: Question
    call: Frame
    caller: Frame | None

    @classmethod
    def of(cls, question: Question, stack: Callable[[int], Sequence[Frame]]) -> Self:
        """Return the call that asks *question*, with *stack* of a runtime or an observer.

        Raises:
            UnknownNodeError: the call was deleted.
        """
        frames = stack(question.node_id)
        ids = [frame.node_id for frame in frames]
        place = ids.index(question.node_id)
        return cls(question, frames[place], frames[place - 1] if place else None)

    @property
    def address(self) -> str:
        """What people write to answer the question."""
        return question_address(self.call.path, self.question.id)

    def as_data(self) -> dict[str, Any]:
        """Return the question and its call for ``--json``."""
        call = data.frame(self.call)
        return data.question(self.question) | {
            "path": call["path"],
            "address": self.address,
            "fn": call["fn"],
            "args": call["args"],
            "caller": _caller_as_data(self.caller),
        }

    def lines(self, mark: str) -> list[str]:
        """Return the lines that ask a person, for stderr; *mark* begins the first."""
        width = columns()
        room, indent = width - len(mark), " " * len(mark)
        heading = [f"{self.call.path} {_signature(self.call)}"]
        if self.caller is not None:
            heading.append(f"called by {self.caller.path} {_signature(self.caller)}")
            if len(line := ", ".join(heading)) <= room:
                heading = [line]
        first, *more = (truncate(line, room) for line in heading)
        asked = self.text_lines(sys.stderr, width, indent)
        return [mark + first, *(indent + line for line in more), *asked]

    def text_lines(self, stream: TextIO, width: int, indent: str) -> list[str]:
        """Return the question, with its kind and its choices; on a terminal it wraps at words."""
        asked = self.question
        kind = "" if asked.kind is QuestionKind.Human else f"{asked.kind}: "
        choices = f" [{' / '.join(map(printable, asked.choices))}]" if asked.choices else ""
        text = f"{kind}{readable(asked.text)}{choices}"
        if stream.isatty():
            text = WordWrap().feed(text, width - len(indent))
        lines = [*text.split("\n"), *(f"  {line}" for line in form_lines(asked)), *_terms(asked)]
        return [f"{indent}{line}" for line in lines]


def table_of(calls: Sequence[AskingCall], stream: TextIO) -> list[str]:
    """Return a table of questions for *stream*; the text of each is below its row, in full."""
    width = columns()
    head, *rows = aligned([_HEAD, *(_cells(one, width) for one in calls)])
    lines = [truncate(head, width)]
    for call, row in zip(calls, rows, strict=True):
        lines += [truncate(row, width), *call.text_lines(stream, width, "    ")]
    return lines


def _cells(one: AskingCall, width: int) -> Sequence[str]:
    caller = "" if one.caller is None else f"{one.caller.path} {_signature(one.caller)}"
    call = truncate(_signature(one.call), min(_LONGEST_CALL, width * 2 // 5))
    return one.address, call, caller


def _terms(asked: Question) -> list[str]:
    """Return who is asked and until when, if that was said."""
    terms = [f"for {printable(asked.to)}"] if asked.to else []
    if asked.escalations:
        later = asked.escalations[0]
        terms.append(f"for {printable(later.to)} from {in_words(later.at)}")
    if asked.expires is not None:
        otherwise = (
            "fails" if asked.default is None else printable(asked.default) or "an empty text"
        )
        terms.append(f"until {in_words(asked.expires)}, otherwise {otherwise}")
    return [f"({'; '.join(terms)})"] if terms else []


def _signature(frame: Frame) -> str:
    return f"{printable(frame.function)}({printable(frame.arguments)})"


def _caller_as_data(caller: Frame | None) -> dict[str, Any] | None:
    if caller is None:
        return None
    found = data.frame(caller)
    return {key: found[key] for key in ("id", "path", "fn", "args")}
