"""The function by which an agent asks a person."""

from collections.abc import Sequence
from typing import Final

from treefold.core.code import CodeFunction
from treefold.core.function import RunContext

_DESCRIPTION: Final = """\
Ask the person you work for, and wait for the answer. Use it for a sign-off at a key point, when \
you lack information that only a person has, or when you are not confident and need guidance; not \
for what you can find out yourself. The person may also tell you to do something else: follow it."""


class HumanInLoop(CodeFunction):
    """Asks a person a question and waits for the answer, without holding a lease.

    Example:
        >>> from treefold import Runtime
        >>> from treefold.toolbox import human_in_loop
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(human_in_loop, {"question": "Which city?"})
        ...     while not (questions := runtime.questions()):
        ...         pass
        ...     runtime.answer(questions[0].id, "Paris")
        ...     node.result()
        'Paris'
    """

    asks_people = True

    def __init__(self) -> None:
        super().__init__(
            name="human_in_loop", desc=_DESCRIPTION, callable=self._ask, repeatable=True
        )

    async def _ask(
        self, ctx: RunContext, question: str, choices: Sequence[str] | None = None
    ) -> str:
        """Ask.

        Args:
            question: What you want to know, with all that is needed to answer it.
            choices: The answers to choose from, if only certain answers make sense.
        """
        return await ctx.ask(question, tuple(choices or ()))


human_in_loop: Final = HumanInLoop()
