"""``Notification``: what ``Runtime(notify=...)`` receives about a question."""

from typing import Any

from treefold.core.fact import Fact
from treefold.core.json_form import LIMIT, json_form
from treefold.core.question import Question


class Notification(Fact, frozen=True, kw_only=True):
    """A question that waits for a person, where it was asked, and how to answer it.

    Its texts are redacted as in the journal.

    Attributes:
        run: the number of the run that waits.
        path: the call that asks, which begins with that number.
        function: the function of that call.
        command: how to answer: a command line, or a line of Python without a journal.

    Example:
        >>> import asyncio
        >>> from treefold import CodeFunction, Runtime
        >>> async def deploy(ctx) -> str:
        ...     return await ctx.ask("Deploy?", ["yes", "no"])
        >>> async def main():
        ...     told = asyncio.Queue()
        ...     async with Runtime(notify=told.put) as runtime:
        ...         node = runtime.invoke(CodeFunction(callable=deploy))
        ...         notification = await told.get()
        ...         runtime.answer(notification.question.id, "yes")
        ...         return notification.path, notification.question.text, await node
        >>> asyncio.run(main())
        ('1', 'Deploy?', 'yes')
    """

    question: Question
    run: int
    path: str
    function: str
    command: str

    def to_json(self, *, limit: int | None = LIMIT) -> dict[str, Any]:
        """Return it as JSON data, which a webhook receives."""
        return json_form(self, limit)
