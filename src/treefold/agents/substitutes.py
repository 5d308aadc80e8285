"""Has the next model of a ``Failover`` go on when one fails."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from treefold.core.conversation import AgentConversation
from treefold.core.errors import ModelProviderException
from treefold.core.model import Model


class Substitutes:
    """The models of one call of an agent, and which of them has the conversation.

    For one request each of them is asked once, beginning with the one that answered last. If all
    fail, the first is asked again, as often as its own retries allow.

    Args:
        models: the preferred one first.
        current: the one that has the conversation.
        retry_primary: after so many seconds the first is asked again; None: only if all fail.
        use: opens the conversation with another model.
    """

    def __init__(
        self,
        conversation: AgentConversation,
        models: Sequence[Model],
        current: Model,
        retry_primary: float | None,
        use: Callable[[Model], Awaitable[None]],
    ) -> None:
        self._conversation = conversation
        self._models = models
        self._current = current
        self._retry_primary = retry_primary
        self._use = use
        self._asked: list[Model] = []  # for the current request
        self._is_patient = False  # the first has its own retries
        self._left_at = conversation.now()  # when the first failed, or this process began

    @property
    def in_order(self) -> Sequence[Model]:
        """The models, the one that has the conversation first."""
        return [self._current, *(one for one in self._models if one is not self._current)]

    async def before_request(self) -> None:
        """Go back to the first model, if it is time to try it again."""
        self._asked = []
        first, retry = self._models[0], self._retry_primary
        if self._is_patient:
            await self._take(first)
        if self._current is first or retry is None:
            return
        now = self._conversation.now()
        if now - self._left_at >= retry:
            self._left_at = now
            await self._take(first)

    async def after_failure(self) -> bool:
        """Let the next model have the conversation; False if all of them have failed."""
        first = self._models[0]
        if len(self._asked) > len(self._models):
            self._asked = []  # a person may have the request made again
            return False
        self._asked = self._asked or [self._current]
        if self._current is first:
            self._left_at = self._conversation.now()
        for one in self._models:
            if one not in self._asked:
                self._asked.append(one)
                # One that has no key, for example, cannot even be opened.
                with suppress(ModelProviderException):
                    await self._take(one)
                    return True
        self._asked.append(first)
        self._current = first
        self._is_patient = True
        await self._use(first)
        return True

    async def _take(self, model: Model) -> None:
        self._current = model
        self._is_patient = False
        # Another model is there: it need not be waited for.
        await self._use(model.without_retries())
