"""The function by which an agent ends with an exception."""

from typing import ClassVar, Final

from treefold.core.agent_errors import AgentException
from treefold.core.code import CodeFunction
from treefold.core.function import RunContext
from treefold.runtime.calls.stack import frames_to
from treefold.runtime.context import Context
from treefold.runtime.conversations.agent_node import AgentNode

_DESCRIPTION: Final = """\
Give up, and tell whoever gave you the task why. It is better to say that something cannot be done \
than to make something up. Use it when you lack information or context that you cannot get, when \
you lack a function that the task needs, when what you were asked is contradictory or impossible, \
or when a function keeps failing and you have tried the alternatives. If you pass on an error \
that you cannot solve, name its type and quote its message; if nothing worked, say very briefly \
what you tried; if something is missing, say very briefly what. You have ended when you call it."""


class RaiseException(CodeFunction):
    """Ends the agent that calls it with an AgentException.

    It is a singleton, ``raise_exception``, so that several agents of a runtime may each use
    ``RaiseException()``.

    Example:
        >>> from treefold import AgentException, Runtime, ToolUse, agent
        >>> from treefold.testing import ScriptedModel
        >>> from treefold.toolbox import raise_exception
        >>> @agent(uses=[raise_exception])
        ... def find(what: str) -> str:
        ...     return f"Find {what}."
        >>> gives_up = ToolUse("1", "raise_exception", {"msg": "there is no such thing"})
        >>> with Runtime([find], models=ScriptedModel(gives_up)) as runtime:
        ...     try:
        ...         runtime.invoke(find, {"what": "a unicorn"}).result()
        ...     except AgentException as error:
        ...         print(error.agent, error.message, sep=": ")
        find: there is no such thing
    """

    ends_its_caller = True
    _instance: "ClassVar[RaiseException | None]" = None

    def __new__(cls) -> "RaiseException":
        return cls._instance or super().__new__(cls)

    def __init__(self) -> None:
        if RaiseException._instance is not None:
            return
        super().__init__(
            name="raise_exception", desc=_DESCRIPTION, callable=self._raise, repeatable=True
        )

    async def _raise(self, ctx: RunContext, msg: str) -> None:
        """Give up.

        Args:
            msg: Why, in a few sentences, so that whoever reads it can ask again in a better way.
        """
        error = AgentException(msg)
        assert isinstance(ctx, Context)  # the only implementation
        caller = ctx.node.parent or ctx.node
        if isinstance(caller, AgentNode):
            ctx.post_exception(error)
        error.locate(frames_to(caller))
        raise error


raise_exception: Final = RaiseException()
RaiseException._instance = raise_exception  # pyright: ignore[reportPrivateUsage]
