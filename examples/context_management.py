"""Keep a chat within the context of its model: four ways, for four kinds of work.

TREEFOLD_MODEL=qwen3 TREEFOLD_BASE_URL=ollama python examples/context_management.py
python examples/context_management.py --local

What it shows: a client for each task, a history that is cut at breakpoints, one that is cut when it
has become too long, and facts that are kept outside of it. Nothing is cut unless you do it: the
history is a list, and you know best what in it still matters.

``TREEFOLD_BASE_URL`` is the address of any OpenAI-compatible server; the default is LM Studio's.
With ``--local`` the small model answers that runs in this process (``treefold local fetch``).
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from treefold import (
    AgentOptions,
    Client,
    TextBlock,
    TreefoldError,
    compact_messages,
    estimate_tokens,
    get_base_url,
    get_model,
    truncate_messages,
)

TASKS = ["Name a river in France.", "Name a city on it.", "Name a bridge there."]


async def ask(client: Client, prompt: str) -> str:
    """Return the answer to *prompt*, and print both with what is in the context by then."""
    await client.query(prompt)
    pieces = [
        block.text async for block in client.receive_messages() if isinstance(block, TextBlock)
    ]
    answer = "".join(pieces)
    held = len(client.history)
    print(f"> {prompt}\n{answer}\n({held} messages, {estimate_tokens(client.history)} tokens)")
    return answer


async def stateless(options: AgentOptions, tasks: Sequence[str]) -> list[str]:
    """For tasks that have nothing to do with each other: each gets a client of its own."""
    answers: list[str] = []
    for task in tasks:
        async with Client(options) as client:
            answers.append(await ask(client, task))
    return answers


async def truncating(options: AgentOptions, tasks: Sequence[str], keep: int = 2) -> list[str]:
    """For work with breakpoints: after each of them only the newest messages are kept."""
    answers: list[str] = []
    async with Client(options) as client:
        for task in tasks:
            answers.append(await ask(client, task))
            client.message_history = truncate_messages(client.history, keep=keep)
    return answers


async def within_budget(
    options: AgentOptions, tasks: Sequence[str], max_tokens: int = 28_000
) -> list[str]:
    """For long conversations: what is said is counted, and the oldest of it goes if it must.

    The default leaves 15 percent of a context of 32k, for counting is only nearly exact.
    """
    answers: list[str] = []
    async with Client(options) as client:
        for task in tasks:
            answers.append(await ask(client, task))
            if estimate_tokens(client.history) > max_tokens:
                client.message_history = compact_messages(client.history, max_tokens)
                print(f"(cut to {len(client.history)} messages)")
    return answers


async def with_memory(options: AgentOptions, topics: Sequence[str], question: str) -> str:
    """For research: what was found is kept elsewhere, and only that is taken along."""
    memory: dict[str, str] = {}
    async with Client(options) as client:
        for topic in topics:
            memory[topic] = await ask(client, f"State one fact about {topic}, in one sentence.")
            client.message_history = truncate_messages(client.history, keep=0)
        facts = "\n".join(f"- {topic}: {fact}" for topic, fact in memory.items())
        return await ask(client, f"{question}\n\nWhat we know:\n{facts}")


async def show(options: AgentOptions) -> None:
    """Show the four ways."""
    print("== A client for each task")
    await stateless(options, TASKS)
    print("\n== The newest messages")
    await truncating(options, TASKS)
    print("\n== As much as fits")
    await within_budget(options, TASKS, max_tokens=60)
    print("\n== A memory outside")
    await with_memory(options, ["the Loire", "the Rhône"], "Which of the two is longer?")


def main() -> int:
    """Show them with the model that the command line names."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--model", help="its name on the server; otherwise TREEFOLD_MODEL")
    parser.add_argument("--local", action="store_true", help="ask the model in this process")
    given = parser.parse_args()
    try:
        options = AgentOptions(
            system_prompt="You answer in one short sentence.",
            model="local" if given.local else get_model(given.model, prefer_env=False),
            base_url=None if given.local else get_base_url(),
        )
        asyncio.run(show(options))
    except TreefoldError as error:
        print(f"context_management: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
