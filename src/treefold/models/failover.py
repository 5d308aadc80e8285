"""``Failover``: several models, of which the next goes on when one fails."""

from collections.abc import Sequence
from typing import Final

from treefold.core.errors import DefinitionError, InvalidValueError, UsageError
from treefold.core.exchange import Exchange
from treefold.core.function import Function, ModelFinder
from treefold.core.model import Model, ModelSettings, Session
from treefold.core.provider import Provider

PREFIX: Final = "failover:"
_BETWEEN: Final = "|"


class Failover(Model):
    """Several models for one agent: when one fails, the next goes on with the conversation.

    The first is used until a request to it fails for good. Each of the others is then tried at
    once, and the one that answers is used from there on, also after a restart. A request that is
    too long is not tried elsewhere: that is what *compaction* is for.

    Args:
        models: names or models, the preferred one first.
        retry_primary: after so many seconds one request is sent to the first model again; None:
            only when all others have failed.

    Example:
        >>> from treefold.models import Failover
        >>> Failover("anthropic:claude-opus-4-1", "ollama:qwen3").name
        'failover:anthropic:claude-opus-4-1|ollama:qwen3'
    """

    provider = Provider.OpenAI  # of none in particular; each of the models has its own

    def __init__(self, *models: Model | Provider | str, retry_primary: float | None = 300) -> None:
        if len(models) < 2 or not all(isinstance(one, Model | str) for one in models):
            raise InvalidValueError(
                f"Failover{models!r}: give two or more models, or their names, the preferred one"
                " first"
            )
        if retry_primary is not None and not retry_primary > 0:
            raise InvalidValueError(f"retry_primary={retry_primary!r}: give seconds, or None")
        self.models: Sequence[Model | Provider | str] = models
        self.retry_primary = retry_primary
        names = [str(getattr(one, "name", one)) for one in models]
        self.name = PREFIX + _BETWEEN.join(names)

    @classmethod
    def named(cls, name: str) -> "Failover":
        """Return the one that *name* describes, ``failover:FIRST|SECOND|...``."""
        return cls(*name.removeprefix(PREFIX).split(_BETWEEN))

    def __repr__(self) -> str:
        return f"<Failover {self.name.removeprefix(PREFIX)}>"

    def found(self, models: ModelFinder) -> list[Model]:
        """Return the models, as *models* finds them.

        Raises:
            InvalidValueError: there is no such model.
        """
        return [models.find(one) for one in self.models]

    def check(self, functions: Sequence[Function]) -> None:
        for one in self.models:
            if isinstance(one, Model):
                one.check(functions)

    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        raise UsageError(f"{self!r} is for agents; a chat and a session have one model")


def candidates(model: Model, models: ModelFinder) -> list[Model]:
    """Return the models that *model* stands for: those of a Failover, or itself."""
    if not isinstance(model, Failover):
        return [model]
    found = model.found(models)
    if any(isinstance(one, Failover) for one in found):
        raise DefinitionError(f"{model!r}: a Failover is not one of the models of another")
    return found


def preferred(models: Sequence[Model], known: str | None) -> Model:
    """Return the model to begin with: the one called *known*, which was the last to answer."""
    return next((one for one in models if one.name == known), models[0])


def retry_primary(model: Model) -> float | None:
    """Return after how many seconds the first model is tried again, if that is by time."""
    return model.retry_primary if isinstance(model, Failover) else None
