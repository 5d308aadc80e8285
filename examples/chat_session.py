"""A conversation that is kept: continued in the next run, and forked to try something else.

TREEFOLD_MODEL=qwen3 python examples/chat_session.py "Plan a day in Lyon for me."
TREEFOLD_MODEL=qwen3 python examples/chat_session.py "And if it rains?" --fork rain
TREEFOLD_MODEL=qwen3 python examples/chat_session.py "Is all that open on Mondays?" --session rain
python examples/chat_session.py --list

What it shows: sessions in a file, forks, and an agent that the model may call like any other tool;
the turn is a call in a runtime, with the agent's below it, and the tree of them is printed.

``TREEFOLD_BASE_URL`` is the address of any OpenAI-compatible server; the default is LM Studio's.
With ``--local`` the small model answers that runs in this process (``treefold local fetch``), which
calls no agents.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from treefold import (
    AgentFunction,
    AgentOptions,
    Client,
    FunctionArg,
    Runtime,
    SessionStore,
    TextBlock,
    TreefoldError,
    get_base_url,
    get_model,
)
from treefold.models import Model, find_model
from treefold.views.text import render

critic = AgentFunction(
    name="criticize",
    desc="Have somebody who has not heard the conversation look for faults in a plan.",
    args=[FunctionArg("plan", str, "The whole plan, in words.")],
    system_prompt="You are hard to please. You name the worst fault of a plan in one sentence.",
    user_prompt_template="What is wrong with this plan?\n\n{plan}",
)


async def talk(
    prompt: str, model: Model, store: Path, session: str = "main", fork: str | None = None
) -> None:
    """Continue *session*, or from where it is in a *fork*, and print the answer and its tree."""
    options = AgentOptions(
        system_prompt="You plan with the user, and have every plan criticized before you show it.",
        model=model,
        tools=[critic] if model.calls_functions else [],
        auto_execute_tools=True,
    )
    async with Runtime() as runtime:  # the agent names no model, and asks the client's
        async with Client(options, session=session, store=store) as client:
            print(f"({len(client.history)} messages so far)")
            if fork is None:
                await answer(client, prompt)
            else:
                async with await client.fork(fork) as branch:
                    await answer(branch, prompt)
        for node in runtime.list_toplevel():
            print("", render(runtime.get_view(node.id)), sep="\n")


async def answer(client: Client, prompt: str) -> None:
    """Say *prompt*, and print the answer as it comes in."""
    await client.query(prompt)
    async for block in client.receive_messages():
        if isinstance(block, TextBlock):
            print(block.text, end="", flush=True)
    print()


def show_sessions(path: Path) -> None:
    """Print what is kept, the newest first."""
    with SessionStore(path) as store:
        for info in store.list():
            print(f"{info.name}: {info.preview!r}, {info.exchanges} requests, by {info.model}")


def main() -> int:
    """Do what the command line says."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("prompt", nargs="?", default="Plan a day in Lyon for me.")
    parser.add_argument("--session", default="main", help="the conversation to continue")
    parser.add_argument("--fork", metavar="NAME", help="leave it as it is, and go on as NAME")
    parser.add_argument("--list", action="store_true", help="show the conversations, and end")
    parser.add_argument("--store", type=Path, default=Path("chats.db"), help="where they are kept")
    parser.add_argument("--model", help="its name on the server; otherwise TREEFOLD_MODEL")
    parser.add_argument("--local", action="store_true", help="ask the model in this process")
    given = parser.parse_args()
    try:
        if given.list:
            show_sessions(given.store)
            return 0
        server = f"openai:{{}}@{get_base_url()}"
        name = "local" if given.local else server.format(get_model(given.model, prefer_env=False))
        asyncio.run(talk(given.prompt, find_model(name), given.store, given.session, given.fork))
    except TreefoldError as error:
        print(f"chat_session: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
