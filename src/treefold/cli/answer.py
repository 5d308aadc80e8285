"""``treefold answer``: say what a call waits to be told."""

import argparse
from collections.abc import Callable

from treefold.cli.journal import add_store_to, opened
from treefold.cli.outcome import EXIT_CODES, add_wait_to, tell_outcome
from treefold.cli.values import read_arguments
from treefold.core.errors import InvalidValueError


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "answer",
        description="Answer a question; 'treefold questions' lists those that are open.",
        epilog=(
            "example: treefold answer 8-1 yes\n\n"
            "What a function asks is answered by one of its choices, or by any text if it has\n"
            "none; an approval by allow, deny or 'deny: why', or by --args, the arguments to use\n"
            "instead; a pause by resume or cancel; a call in doubt, of which nobody knows whether\n"
            "it was made, by retry, 'use: RESULT', fail or 'fail: why'.\n\n" + EXIT_CODES
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("question", metavar="ID", help="the id of the question, such as 12-1")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="the answer")
    parser.add_argument(
        "--args", metavar="JSON", help="allow a call with these arguments, a JSON object"
    )
    add_wait_to(parser)
    add_store_to(parser)
    parser.set_defaults(command=answer)


def answer(options: argparse.Namespace) -> int:
    """Give the answer that *options* have."""
    if options.text is None and options.args is None:
        raise InvalidValueError("say what the answer is: treefold answer ID TEXT")
    args = None if options.args is None else read_arguments(options.args, "--args")
    with opened(options) as observer:
        asked = {question.id: question.node_id for question in observer.questions()}
        observer.answer(options.question, options.text or "", args=args)
        node = asked.get(options.question)

        def done() -> str | None:
            view = None if node is None else observer.get_view(node)
            if view is not None and options.question in {one.id for one in view.questions}:
                return None
            return f"question {options.question} is answered"

        return tell_outcome(options, observer, done, "the answer is taken")
