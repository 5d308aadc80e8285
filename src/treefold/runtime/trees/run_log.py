"""Logs what happens to runs: started, waits for a person, ended; and every call at DEBUG.

All events of all trees come here (``Tree.publish``). Messages are usually disabled, and then an
event costs a dictionary lookup and a check of the level. Text of functions and models is redacted
as in the journal, escaped, and on one line.
"""

import logging
from collections.abc import Callable
from decimal import Decimal
from logging import DEBUG, INFO, WARNING
from shlex import quote
from typing import Any, Final, Protocol

from treefold.core.address import address, question_address
from treefold.core.agent_events import NoticeGiven, RequestSent, ResponseCompleted
from treefold.core.escaping import one_line
from treefold.core.events import CallEnded, CallStarted, Event, QuestionSettled
from treefold.core.frames import short_arguments
from treefold.core.question import Question, QuestionKey
from treefold.core.record import CallRecord
from treefold.core.usage import TokenUsage

log = logging.getLogger(__name__)

_LONGEST: Final = 300  # characters of one text in a message


class LoggedJournal(Protocol):
    """The part of a journal that is needed here."""

    @property
    def path(self) -> str | None:
        """The file that it writes to; None if other processes cannot open the store."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether events are not written any more."""
        ...


class LoggedTree(Protocol):
    """The part of a tree that is needed here."""

    @property
    def kept(self) -> bool:
        """Whether it belongs to a runtime of the program, not to an ambient one."""
        ...

    @property
    def journal(self) -> LoggedJournal | None:
        """Its journal, or None."""
        ...

    def as_written(self, text: str) -> str:
        """Return *text* as the journal has it: redacted."""
        ...


def _started(tree: LoggedTree, record: CallRecord, _event: CallStarted, level: int) -> None:
    args = ""
    # Arguments may be long, and private.
    if log.isEnabledFor(DEBUG):
        args = f": {_quoted(tree, short_arguments(record.inputs))}" if record.inputs else ""
    log.log(level, "%s started%s", name_of(record), args)


def _ended(tree: LoggedTree, record: CallRecord, event: CallEnded, level: int) -> None:
    if tree.journal is not None and tree.journal.is_closed:
        log.log(level, "%s stops here; the next runtime resumes it", name_of(record))
        return
    facts = [event.state.value]
    if event.exception is not None:
        facts.append(_quoted(tree, str(event.exception)))
    if (started := record.started_at) is not None:
        facts.append(f"{max(0.0, event.at - started.timestamp()):.1f} s")
    if record.spending is not None:
        facts += _spent(record.spending.usage, record.spending.cost)
    log.log(level, "%s ended: %s", name_of(record), ", ".join(facts))


def _requested(_tree: LoggedTree, record: CallRecord, _event: RequestSent, level: int) -> None:
    log.log(level, "%s sends a request to %s", name_of(record), record.conversation.model)


def _answered(_tree: LoggedTree, record: CallRecord, event: ResponseCompleted, level: int) -> None:
    spent = ", ".join([event.exchange.finish.name.lower(), *_spent(event.usage, event.cost)])
    log.log(level, "%s received a response: %s", name_of(record), spent)


def _noticed(tree: LoggedTree, record: CallRecord, event: NoticeGiven, level: int) -> None:
    text = one_line(tree.as_written(event.text), 3 * _LONGEST)
    log.log(level, "%s: %s", name_of(record), text)


def _settled(_tree: LoggedTree, record: CallRecord, event: QuestionSettled, level: int) -> None:
    # A question is also settled, without an answer, when its call ends.
    asked = (record.asked or {}).get(event.id)
    if event.answer is None:
        return
    what = "its question was answered"
    if event.answer.expired:
        is_awake = asked is not None and not asked.asks_people
        what = "it has slept" if is_awake else "nobody answered its question in time"
    log.log(level, "%s continues: %s", name_of(record), what)


_LogEvent = Callable[[LoggedTree, CallRecord, Any, int], None]

# For each type of event, its level in a top-level call and in others, and the function that logs
# it, which is called only if that level is enabled.
LOGGED: Final[dict[type[Event], tuple[int, int, _LogEvent]]] = {
    CallStarted: (INFO, DEBUG, _started),
    CallEnded: (INFO, DEBUG, _ended),
    RequestSent: (DEBUG, DEBUG, _requested),
    ResponseCompleted: (DEBUG, DEBUG, _answered),
    NoticeGiven: (WARNING, WARNING, _noticed),
    QuestionSettled: (INFO, INFO, _settled),
}
is_enabled: Final = log.isEnabledFor


def log_question(tree: LoggedTree, record: CallRecord, question: Question, level: int) -> None:
    """Log that a call waits for a person, with the command that answers."""
    # The journal cannot be written, which is logged as an error.
    if question.key == QuestionKey.Journal or not log.isEnabledFor(level):
        return
    text = one_line(tree.as_written(question.text), _LONGEST)
    if not question.asks_people:
        log.log(level, "%s %s", name_of(record), text)
        return
    # It is in an ambient runtime, to which the program has no reference to answer with.
    if not tree.kept and level >= WARNING:
        log.warning(
            "%s asks %r, and nobody can answer it: use it in a Runtime", name_of(record), text
        )
        return
    choices = ""
    if question.choices:
        choices = f" [{one_line(tree.as_written(' / '.join(question.choices)), _LONGEST)}]"
    log.log(
        level,
        '%s waits for %s (%s): "%s"%s; answer with: %s',
        name_of(record),
        one_line(question.to, _LONGEST) or "a person",
        question.kind.value,
        text,
        choices,
        answer_command(question, record.path, None if tree.journal is None else tree.journal.path),
    )


def answer_command(question: Question, call: str, path: str | None) -> str:
    """Return how to answer a question of the call at the path *call*.

    It is answered on the command line if the journal is a file, with this *path*.
    """
    if path is None:
        return f"runtime.answer({question.id!r}, TEXT)"
    return f"treefold answer {question_address(call, question.id)} TEXT {_store_option(path)}"


def questions_command(path: str | None) -> str:
    """Return what lists the open questions: the command line if the journal is a file."""
    if path is None:
        return "runtime.questions()"
    return f"treefold questions {_store_option(path)}"


def _store_option(path: str) -> str:
    return f"--store {quote(path)}"


def name_of(record: CallRecord) -> str:
    """Return the name of a call in log messages."""
    return f"{one_line(record.requested.function, _LONGEST)} ({address(record.path)})"


def _quoted(tree: LoggedTree, text: str) -> str:
    return one_line(tree.as_written(text), _LONGEST)


def _spent(usage: TokenUsage, cost: Decimal | None) -> list[str]:
    if not usage.total:
        return []
    return [f"{usage.total:,} tokens", "price unknown" if cost is None else f"${cost:.4f}"]
