"""``treefold chat``: talk to any model in the terminal."""

from typing import Any

import click

from treefold.cli.options import FILE, command


@command(
    "chat",
    exit_codes="0 it was ended, 1 a prompt from a pipe had no answer or something was not saved,\n"
    "2 there was no chat, 130 it was interrupted",
)
@click.option(
    "--model",
    metavar="NAME",
    help="anthropic:MODEL, openai:MODEL@URL, ollama:MODEL, ...; auto asks which one",
)
@click.option("--base-url", metavar="URL", help="an OpenAI-compatible server that has --model")
@click.option("--local", is_flag=True, help="the embedded model, which needs no key or server")
@click.option(
    "--system", metavar="TEXT", default="You are a helpful assistant.", help="the system prompt"
)
@click.option(
    "--tools",
    type=FILE,
    metavar="MODULE[:NAME]",
    multiple=True,
    help="functions of a module or a .py file that the model may call; may be repeated",
)
@click.option("--session", metavar="NAME", help="save the conversation, and resume it next time")
@click.option(
    "--store", type=FILE, metavar="FILE", help="where sessions are saved, if not in the data folder"
)
@click.option("--max-tokens", metavar="N", type=int, help="the maximum length of an answer")
@click.option("--temperature", metavar="T", type=float, help="how varied the answers are")
def chat(**options: Any) -> int:
    """Talk to a model; /help lists the commands of a chat.

    example: treefold chat --local

    Without --model or --local, TREEFOLD_MODEL (with TREEFOLD_BASE_URL, if that is set) names the
    model. If it is not set, there is no chat, and the error lists the keys and servers found here.
    From a pipe, each line is a prompt, and only the answers are on stdout.
    """
    from treefold.cli.chat_loop import ChatOptions, chat_with  # noqa: PLC0415 - --help needs none

    return chat_with(ChatOptions(**options))
