"""Failures of providers, which ``except`` catches by the SDK's class as well as by our own."""

from functools import cache
from typing import Any, Final

from treefold.core.errors import ModelProviderException, restored

_SDKS: Final = frozenset({"openai", "anthropic", "google"})
# Not pickled: these hold connections and the request.
_NOT_PICKLED: Final = {"inner": None, "request": None, "response": None}


def provider_exception(
    provider: str,
    model: str,
    message: str,
    *,
    status: int | None = None,
    attempts: int = 1,
    inner: BaseException | None = None,
    is_too_long: bool = False,
    context_window: int | None = None,
) -> ModelProviderException:
    """Return a ModelProviderException that is also an instance of the class of *inner*.

    That is so only if *inner* is an exception of a provider's SDK: then ``except
    openai.RateLimitError`` catches it, and it has the attributes of *inner*, such as
    ``status_code`` and ``response``.
    """
    kind = ModelProviderException
    if inner is not None and type(inner).__module__.partition(".")[0] in _SDKS:
        kind = _combined(type(inner))
    error = kind.__new__(kind)
    if kind is not ModelProviderException:
        # "message" is a property of our class, whose text includes the remedy.
        vars(error).update({k: v for k, v in vars(inner).items() if k != "message"})
    ModelProviderException.__init__(
        error,
        provider,
        model,
        message,
        status=status,
        attempts=attempts,
        inner=inner,
        is_too_long=is_too_long,
        context_window=context_window,
    )
    return error


@cache
def _combined(kind: type[BaseException]) -> type[ModelProviderException]:
    """Return a subclass of ModelProviderException and *kind*, named as the former."""

    def reduce(self: ModelProviderException) -> tuple[Any, ...]:
        return (_unpickled, (kind, self.args, vars(self) | _NOT_PICKLED))

    base = ModelProviderException
    names = {name: getattr(base, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(base.__name__, (base, kind), names | {"__reduce__": reduce})


def _unpickled(
    kind: type[BaseException], args: tuple[Any, ...], fields: dict[str, Any]
) -> ModelProviderException:
    return restored(_combined(kind), args, fields)
