"""``treefold answer``, ``treefold pause``, ``treefold say`` and ``treefold cancel``.

They leave a request in the journal. The process that drives the journal carries it out within
moments; if there is none, the next one will.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, Final, cast

import click

from treefold.cli.answered_question import find_question
from treefold.cli.exit_codes import DONE, NOT_YET
from treefold.cli.journal import journal_path, node_id, observe
from treefold.cli.options import (
    command,
    node_argument,
    read_arguments,
    store_option,
    wait_option,
)
from treefold.core.address import address, question_address
from treefold.core.errors import InvalidValueError
from treefold.core.question import QuestionKind
from treefold.core.said import Receipt
from treefold.core.states import NodeState
from treefold.runtime.observe.observer import Observer
from treefold.stores.urls import public_name
from treefold.views.text import readable

EXIT_CODES: Final = (
    "0 it is done, or will be when the program is started again, 2 it cannot be done,\n"
    "3 a process drives the journal, and has not done it in time, 130 it was interrupted"
)
_POLL_INTERVAL: Final = 0.05  # seconds


@command("answer", exit_codes=EXIT_CODES)
@click.argument(
    "words",
    metavar="[CALL] [TEXT | FIELD=VALUE ...]",
    nargs=-1,
    help="the call that asks, such as 3.2, or 3.2:2 for its second question; and the answer",
)
@click.option("--args", metavar="JSON", help="allow a call with these arguments, a JSON object")
@wait_option
@store_option
def answer(words: tuple[str, ...], args: str | None, wait: float, store: str | None) -> int:
    """Answer a question; 'treefold questions' lists those that are open.

    example: treefold answer 3 yes

    If only one question is open, the call can be left out: 'treefold answer yes'.

    A question of a function takes one of its choices, or any text if it has none. An approval
    takes allow, deny or 'deny: why', or --args, the arguments to use instead. A pause takes
    resume or cancel. A call in doubt, which may or may not have been made before a crash, takes
    retry, 'use: RESULT', fail or 'fail: why'. Yes and y stand for allow, no and n for deny, and
    the other way round. Write -- before a text that begins with a dash.

    A question with a form takes JSON, or its fields one by one: 'treefold answer 3 city=Rome
    nights=3'. Without an answer, the fields are asked for.
    """
    arguments = None if args is None else read_arguments(args, "--args")
    with observe(store) as observer:
        question, text = find_question(observer, words, has_args=arguments is not None)
        observer.answer(question.id, text, args=arguments)
        path = observer.get_view(question.node_id).path

        def done() -> str | None:
            view = observer.get_view(question.node_id)
            if (why := observer.refusal(question.id)) is not None:
                raise InvalidValueError(why)
            if question.id in {one.id for one in view.questions}:
                return None
            return f"question {question_address(path, question.id)} is answered"

        return report_outcome(observer, store, wait, done, "the answer is taken")


@command("pause", exit_codes=EXIT_CODES)
@node_argument(required=True)
@click.option("--reason", metavar="TEXT", default="it was paused", help="why")
@wait_option
@store_option
def pause(node: str, reason: str, wait: float, store: str | None) -> int:
    """Pause a call and all calls below it: they make no further request or call.

    example: treefold pause last --reason 'it spends too much'

    What is already running continues up to its next request or call. 'treefold resume' resumes
    the call.
    """
    with observe(store) as observer:
        id = node_id(observer, node)
        observer.pause(id, reason)
        view = observer.get_view(id)
        name = f"{view.fn} ({address(view.path)})"

        def done() -> str | None:
            view = observer.get_view(id)
            if view.state.final:
                return f"{name} has ended meanwhile ({view.state})"
            held = any(question.kind is QuestionKind.Paused for question in view.questions)
            return f"{name} is paused; 'treefold resume {view.path}' resumes it" if held else None

        return report_outcome(observer, store, wait, done, f"{name} is paused")


@command("cancel", exit_codes=EXIT_CODES)
@node_argument(required=True)
@click.option("--reason", metavar="TEXT", default="cancelled", help="why")
@wait_option
@store_option
def cancel(node: str, reason: str, wait: float, store: str | None) -> int:
    """Cancel a call and all calls below it.

    example: treefold cancel last --reason 'it is the wrong folder'

    'treefold resume' resumes a cancelled run as a fork.
    """
    with observe(store) as observer:
        id = node_id(observer, node)
        observer.cancel(id, reason)
        view = observer.get_view(id)
        name = f"{view.fn} ({address(view.path)})"

        def done() -> str | None:
            state = observer.get_view(id).state
            if state is NodeState.Canceled:
                return f"{name} was cancelled"
            return f"{name} has ended before that ({state})" if state.final else None

        return report_outcome(observer, store, wait, done, f"{name} is cancelled")


@command("say", exit_codes=EXIT_CODES)
@node_argument(required=True)
@click.argument("text", metavar="TEXT", help="what to say; - reads it from standard input")
@click.option(
    "--when",
    type=click.Choice(["next", "idle"]),
    default="next",
    help="with the next request of the agent (the default), or when it would end",
)
@wait_option
@store_option
def say(node: str, text: str, when: str, wait: float, store: str | None) -> int:
    """Say something to an agent while it runs.

    example: treefold say 3 'Leave the tests alone, please.'

    It is delivered once, after the results of the calls that are under way. This waits until it is
    delivered with a request, and says which; the agent may be any call below a run, such as 3.2.
    """
    if text == "-":
        text = sys.stdin.read()
    with observe(store) as observer:
        id = node_id(observer, node)
        said = observer.say(id, text, when=cast("Any", when))

        def done() -> str | None:
            if (why := observer.refusal(id)) is not None:
                raise InvalidValueError(why)
            view = observer.get_view(id)
            name = f"{view.fn} ({address(view.path)})"
            known = next((one for one in view.messages if one.id == said.id), None)
            if known is not None and known.receipt is Receipt.Delivered:
                return f"delivered to {name}, with request {known.step}"
            if view.state.final:
                raise InvalidValueError(f"{name} has ended without having read it ({view.state})")
            return None

        return report_outcome(observer, store, wait, done, "it is delivered")


def report_outcome(
    observer: Observer,
    store: str | None,
    wait: float,
    done: Callable[[], str | None],
    expected: str,
    alternative: str = "",
) -> int:
    """Wait until a request is carried out, print what became of it, and return the exit code.

    Args:
        observer: observes the journal with the request.
        store: the journal, as the command line names it.
        wait: seconds to wait if a process drives the journal.
        done: returns what to print once it is done, None until then.
        expected: what will happen, for the message that it is not done yet.
        alternative: added to that message if no process drives the journal.
    """
    end = time.monotonic() + wait
    while (said := done()) is None:
        if not observer.is_driven:
            print(readable(_later(public_name(journal_path(store)), expected) + alternative))
            return DONE
        if time.monotonic() >= end:
            print(readable(_not_yet(wait, expected)), file=sys.stderr)
            return NOT_YET
        time.sleep(_POLL_INTERVAL)
    print(readable(said))
    return DONE


def _later(journal: str, expected: str) -> str:
    return (
        f"no process drives {journal} now: {expected} when the program that made it is started"
        f" again, such as by the same 'treefold run ... --store {journal}' as before"
    )


def _not_yet(wait: float, expected: str) -> str:
    return (
        f"requested, but not done in {wait:g} s: {expected} when the process that drives the"
        " journal gets to it; if it cannot be done, the log of that process says why"
    )
