"""Give a model one tool, and ask something that it needs the tool for.

TREEFOLD_MODEL=qwen3 TREEFOLD_BASE_URL=http://localhost:11434/v1 python examples/simple_tool.py

``TREEFOLD_BASE_URL`` is the address of any OpenAI-compatible server; the default is LM Studio's.
"""

import asyncio
from datetime import date

from treefold import AgentOptions, TextBlock, get_base_url, get_model, query, tool


@tool
async def weekday(day: date) -> str:
    """Tell on which day of the week a date falls."""
    return f"{day:%A}"


async def main() -> None:
    """Ask, and print the answer as it comes in."""
    options = AgentOptions(
        system_prompt="You answer in one sentence.",
        model=get_model(),
        base_url=get_base_url(),
        tools=[weekday],
        auto_execute_tools=True,
    )
    async for message in query("On which day of the week did Apollo 11 land?", options):
        for block in message.content:
            if isinstance(block, TextBlock):
                print(block.text, end="", flush=True)
    print()


if __name__ == "__main__":
    asyncio.run(main())
