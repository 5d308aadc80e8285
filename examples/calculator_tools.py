"""Let a model calculate: once the client makes the calls, once you do.

TREEFOLD_MODEL=qwen3 TREEFOLD_BASE_URL=http://localhost:11434/v1 python examples/calculator_tools.py
python examples/calculator_tools.py --model qwen3 "What is the mean of 3, 4 and 8, in two digits?"

What it shows: tools in the named form, whose handler takes all arguments as one dict; handlers with
``async`` and without; parameters that may be left out, said in three ways; failures that the model
is told of; automatic and manual mode side by side.

``TREEFOLD_BASE_URL`` is the address of any OpenAI-compatible server; the default is LM Studio's.
"""

import argparse
import asyncio
import math
import sys
from dataclasses import replace
from typing import Any

from treefold import (
    AgentOptions,
    Client,
    TextBlock,
    ToolUseBlock,
    ToolUseError,
    TreefoldError,
    get_base_url,
    get_model,
    tool,
)

QUESTION = "Divide the sum of 25 and 17 by 9, and round the result."


@tool("add", "Add two numbers.", {"a": float, "b": float})
async def add(args: dict[str, Any]) -> float:
    """Add two numbers."""
    return float(args["a"] + args["b"])


@tool("divide", "Divide a number by another.", {"dividend": float, "divisor": float})
def divide(args: dict[str, Any]) -> float:
    """Divide a number by another; a plain ``def`` is run in a thread."""
    return float(args["dividend"] / args["divisor"])


@tool(
    "round_to",
    "Round a number.",
    {"number": float, "digits": {"type": "integer", "default": 2}},
)
def round_to(args: dict[str, Any]) -> float:
    """Round a number; the default is told to the model, and left to the handler to fill in."""
    return float(round(args["number"], args.get("digits", 2)))


@tool(
    "logarithm",
    "Take a logarithm, the natural one if there is no base.",
    {"number": float, "base": {"type": "number", "optional": True}},
)
def logarithm(args: dict[str, Any]) -> float:
    """Take a logarithm."""
    return math.log(args["number"], args.get("base", math.e))


@tool(
    "mean",
    "Take the mean of numbers.",
    {
        "numbers": list[float],
        "weights": {"type": "array", "items": {"type": "number"}, "required": False},
    },
)
async def mean(args: dict[str, Any]) -> float:
    """Take the mean of numbers."""
    numbers: list[float] = args["numbers"]
    weights: list[float] = args.get("weights") or [1.0] * len(numbers)
    pairs = zip(numbers, weights, strict=True)
    return sum(number * weight for number, weight in pairs) / sum(weights)


TOOLS = {one.name: one for one in (add, divide, round_to, logarithm, mean)}


async def automatic(question: str, options: AgentOptions) -> None:
    """Print the answer to *question*; the client makes the calls and sends their results."""
    async with Client(replace(options, auto_execute_tools=True, max_tool_iterations=10)) as client:
        await client.query(question)
        async for block in client.receive_messages():
            show(block)
    print()


async def manual(question: str, options: AgentOptions) -> None:
    """Print the answer to *question*; each call is made here, where it could be made otherwise."""
    async with Client(options) as client:
        await client.query(question)
        async for block in client.receive_messages():
            show(block)
            if isinstance(block, ToolUseBlock):
                await client.add_tool_result(block.id, await result_of(block), block.name)
                await client.query("")  # this loop continues with the next response
    print()


async def result_of(call: ToolUseBlock) -> Any:
    """Make the *call*; its arguments are unchecked."""
    try:
        return await TOOLS[call.name].execute(call.input)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def show(block: object) -> None:
    """Print one piece of an answer."""
    match block:
        case TextBlock(text):
            print(text, end="", flush=True)
        case ToolUseBlock(_, name, given):
            print(f"[{name} {given}]")
        case ToolUseError(error):
            print(f"[failed: {error}]")
        case _:
            pass  # what the model thinks is not shown


def main() -> int:
    """Ask in both ways what the command line says."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--model", help="its name on the server; otherwise TREEFOLD_MODEL")
    given = parser.parse_args()
    try:
        options = AgentOptions(
            system_prompt="You calculate with your tools only, never in your head.",
            model=get_model(given.model, prefer_env=False),
            base_url=get_base_url(),
            tools=list(TOOLS.values()),
        )
        print("The client makes the calls:")
        asyncio.run(automatic(given.question, options))
        print("\nThe calls are made here:")
        asyncio.run(manual(given.question, options))
    except TreefoldError as error:
        print(f"calculator_tools: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
