"""What checkers know of the answers to questions; never run."""

from datetime import UTC, date, datetime, timedelta
from typing import Literal, assert_type

from pydantic import BaseModel

from treefold import Notification, RunContext, Runtime


class Report(BaseModel):
    title: str


async def ask(ctx: RunContext) -> tuple[str, int | None]:
    assert_type(await ctx.ask("Why?"), str)
    assert_type(await ctx.ask("Deploy?", ["yes", "no"], default="no", expires=60), str)
    assert_type(await ctx.ask("Deploy?", choices=["yes", "no"]), str)
    assert_type(await ctx.ask(Report, "How was it?"), Report)
    assert_type(await ctx.ask(bool, "Sure?", default=True, expires=timedelta(hours=1)), bool)
    assert_type(await ctx.ask(date, "When?", to="anna", escalate={"team": 3600}), date)
    assert_type(await ctx.ask(list[str], "Which?"), list[str])
    # There is no type of types such as these yet that both checkers know (PEP 747).
    level: Literal["low", "high"] = await ctx.ask(Literal["low", "high"], "Which level?")
    count: int | None = await ctx.ask(int | None, "How many?", default=None, expires=60)
    await ctx.sleep(3)
    await ctx.sleep(timedelta(days=1))
    await ctx.sleep_until(datetime(2026, 5, 31, tzinfo=UTC))
    return level, count


async def tell(notification: Notification) -> None:
    assert_type(notification.path, str)


Runtime(notify=tell)
Runtime(notify=lambda notification: notification.path)
Runtime(notify="https://example.com/hook")
