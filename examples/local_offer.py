"""Make an offer with a model that runs in this process: an agent with tools and a typed result.

treefold local fetch qwen2.5-coder-1.5b
python examples/local_offer.py "Do you have three lamps, and what do they cost?"

It needs no key and no server. The agent looks up the stock and the price by calling functions, and
returns an ``Offer``; what it costs is computed here, because small models are bad at it.
"""

import argparse
import sys

from pydantic import BaseModel, Field

from treefold import Runtime, TreefoldError, agent, tool
from treefold.models import Model, find_model
from treefold.views.text import render

MODEL = "local:qwen2.5-coder-1.5b"
REQUEST = "Do you have three lamps, and what do they cost?"
SHOP = {"lamp": (37, 12.5), "chair": (2, 49.0), "table": (0, 180.0)}


class Offer(BaseModel):
    """What a customer can have."""

    item: str = Field(description="what the customer wants to buy, in the singular")
    quantity: int = Field(description="how many of them the customer wants")
    in_stock: int = Field(description="how many there are, as look_up says")
    unit_price: float = Field(description="euros for one, as look_up says")


@tool
async def look_up(item: str) -> str:
    """Look up how many pieces of an item there are, and what one of them costs."""
    name = item.lower().removesuffix("s")
    if name not in SHOP:
        raise ValueError(f"there is no {item!r}; there are {', '.join(SHOP)}")
    count, price = SHOP[name]
    return f"{name}: {count} in stock, {price} euros each"


@agent(
    system="You work in a shop. Look up what the customer wants, then return the result.",
    uses=[look_up],
    returns=Offer,
    max_steps=8,
)
def make_offer(request: str) -> str:
    """Make an offer to a customer."""
    return f"A customer asks: {request}"


def answer(request: str, model: Model) -> Offer:
    """Have an offer made, print how, and return it."""
    with Runtime([make_offer], models=model) as runtime:
        node = runtime.invoke(make_offer, {"request": request})
        try:
            offer: Offer = node.result()
        finally:
            print(render(runtime.get_view(node.id)))
    count = min(offer.quantity, offer.in_stock)
    print(f"{count} of {offer.quantity}: {offer.item}, {count * offer.unit_price:.2f} euros")
    return offer


def main() -> int:
    """Make the offer that the command line asks for."""
    about, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("request", nargs="?", default=REQUEST)
    parser.add_argument("--model", default=MODEL, help=f"{MODEL} by default")
    options = parser.parse_args()
    try:
        answer(options.request, find_model(options.model))
    except TreefoldError as error:
        print(f"local_offer: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
