"""What a session costs beside the same work by hand, on the same server, in one run.

CPU time of this process; the server has its own. Prints a table and writes JSON beside it.
"""

import asyncio
from typing import Any

import by_hand
from side_by_side import Row, Run, compare

from treefold import registries, tool
from treefold.core.model_events import PartCompleted
from treefold.core.transcript import ModelText, ToolResult, ToolUse, UserText
from treefold.models import AnthropicModel, GeminiModel, Model, OpenAIModel

with registries():

    @tool
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b


PATHS = {
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "gemini": "/v1/models/m:streamGenerateContent?alt=sse",
}
CHUNKS = 2_000
AGENTS = 1_000


def ours(protocol: str, base: str) -> Model:
    """Return the model that talks to the server at *base*."""
    if protocol == "openai":
        return OpenAIModel("m", base_url=f"{base}/v1", api_key="key-of-the-bench")
    kind = AnthropicModel if protocol == "anthropic" else GeminiModel
    return kind("m", base_url=base, api_key="key-of-the-bench")


async def converse(model: Model) -> str:
    """Have a conversation with *model*; return the answer."""
    session = model.open("", [add])
    inputs: list[UserText | ToolResult] = [UserText("go")]
    while True:
        parts = [e.part async for e in session.send(*inputs) if isinstance(e, PartCompleted)]
        calls = [part for part in parts if isinstance(part, ToolUse)]
        if not calls:
            return "".join(part.text for part in parts if isinstance(part, ModelText))
        inputs = [ToolResult(call.id, str(await add(**call.args))) for call in calls]


def many(run: Run, times: int) -> Run:
    """Return a run of *times* at once."""

    async def runs() -> str:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_as_coroutine(run)) for _ in range(times)]
        return tasks[0].result()

    return runs


async def _as_coroutine(run: Run) -> str:
    return await run()


async def measure(host: str, rounds: int) -> tuple[list[Row], dict[str, float]]:
    """Measure everything."""
    rows: list[Row] = []
    opened: list[Any] = []

    def pair(protocol: str, calls: int, chunks: int, client: Any) -> tuple[Run, Run]:
        base = f"{host}/{calls}/{chunks}"
        model = ours(protocol, base)
        http = client(base + PATHS[protocol])
        opened.append(http)
        loop = getattr(by_hand, protocol)
        return lambda: converse(model), lambda: loop(http)

    for protocol in PATHS:
        for calls, target in ((10, 1.3), (200, 1.5)):
            sides = pair(protocol, calls, 20, by_hand.Httpx)
            rows.append(Row(f"{protocol}: tool cycle, {calls} of them", target, calls, *sides))
        sides = pair(protocol, 0, CHUNKS, by_hand.Httpx)
        rows.append(Row(f"{protocol}: streamed chunk", 1.5, CHUNKS, *sides))
        mine, other = pair(protocol, 5, 20, by_hand.Aiohttp)
        crowd = many(mine, AGENTS), many(other, AGENTS)
        rows.append(
            Row(f"{protocol}: {AGENTS} at once, a request of each", 2.5, AGENTS * 6, *crowd)
        )
    for row in rows:
        await row.warm_up()
    for _ in range(rounds):
        for row in rows:
            await row.measure()
    for http in opened:
        await http.close()
    return rows, {}


if __name__ == "__main__":
    compare(__doc__, "model", measure)
