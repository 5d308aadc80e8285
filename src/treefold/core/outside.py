"""Failures for want of something outside a run: it can be continued when that is there."""

from typing import Final

from treefold.core.errors import PUBLIC_MODULE
from treefold.core.events import Failure

# A provider, a model or its price, money, the journal, the place of work. A model that refuses, an
# agent that gives up and a tool that raises have decided something: that is their outcome.
_OUTSIDE: Final = frozenset({
    "BudgetExceeded",
    "EngineError",
    "FencedError",
    "ModelProviderException",
    "NoModelError",
    "StoreBusyError",
    "StoreError",
    "UnknownPriceError",
})
_OF_OTHERS: Final = frozenset({"BaseExceptionGroup", "EnsembleError", "ExceptionGroup"})


def is_outside(failure: Failure | None) -> bool:
    """Whether a call failed for want of something outside its tree."""
    # Journals of version 1 do not have the module.
    return (
        failure is not None and failure.type in _OUTSIDE and failure.module in {PUBLIC_MODULE, ""}
    )


def is_of_others(failure: Failure) -> bool:
    """Whether a failure only says that other calls have failed."""
    return failure.type in _OF_OTHERS
