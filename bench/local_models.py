"""How well the local models fill in schemas and call functions; ``make test-local`` runs it.

    python bench/local_models.py [--model NAME] ...

Each model gets 8 texts from which an agent extracts a typed result, and 6 tasks for which an agent
has to call functions. An extraction counts if every field is right. A task counts if the expected
functions were called, in that order, and the answer contains what the last of them returned. It
exits with 1 if a model is worse than what was measured before, with some tolerance.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from join_weights import PIECES, join
from pydantic import BaseModel, Field

from treefold import Runtime, TreefoldError, agent, registries, tool
from treefold.models import LocalModel, Model, fetch_weights
from treefold.models.local.catalogue import CATALOGUE, Weights

_TIMEOUT: Final = 900.0  # seconds for one task, on a busy machine

# What each model must reach, of 8 and of 6.
LEAST: Final = {
    "smollm2-135m": (0, 0),
    "qwen2.5-coder-0.5b": (6, 0),
    "qwen2.5-coder-1.5b": (6, 5),
}


class Person(BaseModel):
    """A person."""

    name: str
    age: int


class Meeting(BaseModel):
    """An appointment."""

    topic: str
    weekday: str
    hour: int = Field(description="from 0 to 23")


class Invoice(BaseModel):
    """A request to pay."""

    number: str
    company: str
    total: float


class Review(BaseModel):
    """The opinion of a customer."""

    product: str
    sentiment: Literal["positive", "negative", "neutral"]


class Shopping(BaseModel):
    """Things to buy."""

    items: list[str]


class Flight(BaseModel):
    """A flight."""

    number: str
    origin: str
    destination: str


class Item(BaseModel):
    """A line of an order."""

    name: str
    quantity: int


class Order(BaseModel):
    """An order."""

    customer: str
    items: list[Item]


class Switch(BaseModel):
    """What to do with a lamp."""

    room: str
    on: bool


EXTRACTIONS: Final[tuple[tuple[str, BaseModel], ...]] = (
    ("Maria Lopez, who turned 34 in May, lives in Porto.", Person(name="Maria Lopez", age=34)),
    (
        "Let us talk about the budget on Thursday at 3 pm.",
        Meeting(topic="budget", weekday="Thursday", hour=15),
    ),
    (
        "Invoice A-1041 from Nordwind Ltd. Net 100.00, tax 19.00, to pay: 119.00 euros.",
        Invoice(number="A-1041", company="Nordwind Ltd", total=119.0),
    ),
    (
        "The kettle leaked on the first day and nobody answers my mails.",
        Review(product="kettle", sentiment="negative"),
    ),
    (
        "Please bring eggs, flour and lemons. We still have butter.",
        Shopping(items=["eggs", "flour", "lemons"]),
    ),
    (
        "LH 455 leaves San Francisco at 14:40 and lands in Frankfurt the next morning.",
        Flight(number="LH 455", origin="San Francisco", destination="Frankfurt"),
    ),
    (
        "Tom Baker ordered 3 chairs and 1 table.",
        Order(
            customer="Tom Baker",
            items=[Item(name="chair", quantity=3), Item(name="table", quantity=1)],
        ),
    ),
    ("It is too bright in the kitchen, turn the lamp off.", Switch(room="kitchen", on=False)),
)

STOCK: Final = {"lamp": 37, "chair": 4, "table": 0}
PRICES: Final = {"lamp": 12.5, "chair": 49.0, "table": 180.0}
WEATHER: Final = {"oslo": "snow, -4 degrees", "rome": "sun, 21 degrees"}

with registries():

    @tool
    async def stock(item: str) -> int:
        """Return how many pieces of an item are in the warehouse."""
        return STOCK[item.lower().removesuffix("s")]

    @tool
    async def price(item: str) -> float:
        """Return the price of one piece of an item in euros."""
        return PRICES[item.lower().removesuffix("s")]

    @tool
    async def multiply(a: float, b: float) -> float:
        """Multiply two numbers."""
        return a * b

    @tool
    async def weather(city: str) -> str:
        """Return the weather of a city."""
        return WEATHER[city.lower()]

    @tool
    async def send_message(recipient: str, text: str) -> str:
        """Send a message to a person."""
        return f"sent to {recipient}"


@dataclass(frozen=True, slots=True)
class Errand:
    """A task that needs calls.

    Attributes:
        calls: the functions that have to be called, in this order.
        answer: what the answer has to contain.
    """

    task: str
    calls: tuple[str, ...]
    answer: str = ""


ERRANDS: Final = (
    Errand("How many lamps are in the warehouse?", ("stock",), "37"),
    Errand("What does a chair cost?", ("price",), "49"),
    Errand("What is 1234 times 5678?", ("multiply",), "7006652"),
    Errand("What is the weather in Oslo?", ("weather",), "snow"),
    Errand("Send Anna the message 'dinner at 8'.", ("send_message",)),
    Errand(
        "Find out the weather in Rome, and then send it to Bob as a message.",
        ("weather", "send_message"),
    ),
)


async def extract(
    runtime: Runtime, model: Model, text: str, expected: BaseModel
) -> tuple[bool, str]:
    """Return whether *model* finds *expected* in *text*, and what it found."""

    @agent(returns=type(expected), model=model)
    def extraction(text: str) -> str:
        return f"Extract what this text says.\n\n{text}"

    found = await runtime.invoke(extraction, {"text": text})
    return _normal(found) == _normal(expected), repr(found)


def _normal(value: Any) -> Any:
    """Return *value* without the differences that do not matter: case, articles, plurals."""
    match value:
        case BaseModel():
            return _normal(value.model_dump())
        case dict():
            return {key: _normal(one) for key, one in cast("Mapping[str, Any]", value).items()}
        case list():
            return [_normal(one) for one in cast("list[Any]", value)]
        case str():
            return value.lower().strip(" .").removeprefix("the ").removesuffix("s")
        case _:
            return value


async def run_errand(runtime: Runtime, model: Model, errand: Errand) -> tuple[bool, str]:
    """Return whether *model* does *errand*, and what it did."""

    @agent(
        system="Answer with the help of the functions.",
        uses=[stock, price, multiply, weather, send_message],
        model=model,
        max_steps=6,
    )
    def helper(task: str) -> str:
        return task

    node = runtime.invoke(helper, {"task": errand.task})
    answer = str(await node)
    made = [view.fn for view in runtime.get_view(node.id).children]
    right = made == list(errand.calls) and errand.answer in answer.replace(",", "")
    return right, f"{', '.join(made) or 'no call'}; {answer}"


async def attempt(title: str, trial: Awaitable[tuple[bool, str]]) -> bool:
    """Print and return whether *trial* succeeds."""
    begin = time.monotonic()
    try:
        async with asyncio.timeout(_TIMEOUT):
            right, found = await trial
    except (TreefoldError, TimeoutError) as error:
        right, found = False, f"{type(error).__name__}: {error}"
    took = time.monotonic() - begin
    shown = " ".join(found.split())[:200]
    print(f"  {'right' if right else 'wrong'} {took:6.1f} s  {title}\n{'':17}{shown}", flush=True)
    return right


async def score(weights: Weights) -> tuple[int, int]:
    """Return how many extractions and how many tasks the model gets right."""
    model = LocalModel(weights.name)
    async with Runtime() as runtime:
        typed = [
            await attempt(text, extract(runtime, model, text, expected))
            for text, expected in EXTRACTIONS
        ]
        if not model.calls_functions:
            print("  the tasks are left out: functions are not offered to this model")
            return sum(typed), 0
        called = [
            await attempt(errand.task, run_errand(runtime, model, errand)) for errand in ERRANDS
        ]
    return sum(typed), sum(called)


def main() -> int:
    """Score the models; return the exit code."""
    parser = argparse.ArgumentParser(description="score the local models")
    names = [weights.name for weights in CATALOGUE]
    parser.add_argument("--model", action="append", choices=names, help="all of them by default")
    chosen = parser.parse_args().model or names
    scores: dict[str, tuple[int, int]] = {}
    for weights in CATALOGUE:
        if weights.name in chosen:
            print(f"{weights.name}, {weights.megabytes} MB", flush=True)
            path = join(weights) if weights.name in PIECES else fetch_weights(weights)
            print(f"  {path}", flush=True)
            scores[weights.name] = asyncio.run(score(weights))
    print("\nmodel                 typed results   function calls")
    for name, (typed, called) in scores.items():
        print(f"{name:<22}{typed:>6} of {len(EXTRACTIONS)}{called:>12} of {len(ERRANDS)}")
    worse = [name for name, found in scores.items() if not _reaches(found, LEAST[name])]
    if worse:
        print(f"worse than measured before: {', '.join(worse)}; at least {LEAST}")
    return 1 if worse else 0


def _reaches(found: tuple[int, int], least: tuple[int, int]) -> bool:
    return found[0] >= least[0] and found[1] >= least[1]


if __name__ == "__main__":
    raise SystemExit(main())
