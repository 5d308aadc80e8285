"""Functions that ask for values, for the tests of the command line."""

from pydantic import BaseModel, field_validator

from treefold import CodeFunction, RunContext


class Trip(BaseModel):
    city: str
    nights: int = 2
    by_train: bool

    @field_validator("city")
    @classmethod
    def known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("there is no such city")
        return city


async def _book(ctx: RunContext) -> str:
    trip = await ctx.ask(Trip, "Which trip?", to="travel desk")
    return f"{trip.city} for {trip.nights}, {trip.by_train}"


async def _count(ctx: RunContext) -> int:
    return await ctx.ask(int, "How many?", default=7, expires=3600)


async def _doze(ctx: RunContext, seconds: float) -> str:
    await ctx.sleep(seconds)
    return "awake"


book = CodeFunction(name="book", callable=_book, repeatable=True)
count = CodeFunction(name="count", callable=_count, repeatable=True)
doze = CodeFunction(name="doze", callable=_doze, repeatable=True)
