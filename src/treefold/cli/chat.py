"""``treefold chat``: talk to any model in the terminal."""

import argparse
from collections.abc import Callable
from typing import Final

_SYSTEM: Final = "You are a helpful assistant."


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "chat",
        description="Talk to a model; /help lists what else can be done there.",
        epilog=(
            "example: treefold chat --local\n\n"
            "Without a model TREEFOLD_MODEL and TREEFOLD_BASE_URL say which; otherwise one of\n"
            "a server that runs on this machine, or else the embedded one. From a pipe, each\n"
            "line is a prompt, and only the answers are on stdout.\n\n"
            "exit codes: 0 it was ended, 1 a prompt from a pipe had no answer or something was\n"
            "not saved, 2 there was no chat, 130 it was interrupted"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", metavar="NAME", help="anthropic:MODEL, openai:MODEL@URL, ollama:MODEL, ...")
    add("--base-url", metavar="URL", help="an OpenAI-compatible server, which knows --model")
    add("--local", action="store_true", help="the embedded model, which needs no key or server")
    add("--system", metavar="TEXT", default=_SYSTEM, help="who the model is")
    add(
        "--tools",
        metavar="MODULE[:NAME]",
        action="append",
        default=[],
        help="functions of a module or a .py file that the model may call; may be repeated",
    )
    add("--session", metavar="NAME", help="save the conversation, and go on with it next time")
    add("--store", metavar="FILE", help="where sessions are saved, if not in the data folder")
    add("--max-tokens", metavar="N", type=int, help="the longest answer")
    add("--temperature", metavar="T", type=float, help="how varied the answers are")
    parser.set_defaults(command=chat)


def chat(options: argparse.Namespace) -> int:
    """Talk until whoever sits there has enough."""
    from treefold.cli.chatting import chat_with  # noqa: PLC0415 - the other commands need not wait

    return chat_with(options)
