"""Let an agent say that it cannot do what it was asked."""

from typing import Final

from ramify.core.agent_errors import AgentException
from ramify.core.code import CodeFunction
from ramify.core.function import RunContext
from ramify.runtime.agent_node import AgentNode
from ramify.runtime.context import Context
from ramify.runtime.stack import frames_to

_DESCRIPTION: Final = """\
Give up, and tell whoever gave you the task why. It is better to say that something cannot be done \
than to make something up. Use it when you lack information or context that you cannot get, when \
you lack a function that the task needs, when what you were asked is contradictory or impossible, \
or when a function keeps failing and you have tried the alternatives. If you pass on an error \
that you cannot solve, name its type and quote its message; if nothing worked, say very briefly \
what you tried; if something is missing, say very briefly what. You have ended when you call it."""


class RaiseException(CodeFunction):
    """Ends the agent that calls it with an AgentException.

    Example:
        >>> from ramify import AgentException, Runtime, ToolUse, agent
        >>> from ramify.testing import ScriptedModel
        >>> from ramify.toolbox import raise_exception
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

    def __init__(self) -> None:
        super().__init__(
            name="raise_exception", desc=_DESCRIPTION, callable=self._give_up, repeatable=True
        )

    async def _give_up(self, ctx: RunContext, msg: str) -> None:
        """Give up.

        Args:
            msg: Why, in a few sentences, so that whoever reads it can ask again in a better way.
        """
        error = AgentException(msg)
        assert isinstance(ctx, Context)  # there is no other
        caller = ctx.node.parent or ctx.node
        error.locate(frames_to(caller))
        if isinstance(caller, AgentNode):
            caller.resignations.append(error)
        raise error


raise_exception: Final = RaiseException()
