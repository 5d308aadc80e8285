"""``Budget``: what a call, and all calls below it, may spend."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from operator import index
from typing import Annotated, Any, Final

from treefold.core.errors import InvalidValueError
from treefold.core.fact import VERBATIM, Fact, force_setattr, replace
from treefold.core.scalars import exact_flag, exact_number, exact_text

# The limits of a budget, and how each is read.
_AMOUNTS: Final[dict[str, Callable[[str], Any]]] = {
    "usd": Decimal,
    "tokens": int,
    "seconds": float,
    "calls": int,
}


class Budget(Fact, frozen=True, kw_only=True):
    """Limits on money, tokens, time and requests to models; None means no limit.

    A request is sent only if it fits into the budget of its call and of every call above it. The
    most that it can take, its longest answer included, is reserved while it is under way, and
    others wait if no more is left. One request at a time needs room for its input only: a budget is
    exceeded by one answer at most.

    Attributes:
        usd: US dollars. A model without a known price cannot be used with this limit.
        tokens: input and output tokens together.
        seconds: from the start of the call, in whichever process; after them it is stopped,
            whatever it is doing.
        calls: requests to models.
        last_call: allow an agent one more request, without functions, to say what it has found.
        name: in a shared store, all budgets of this name are one account, which lasts for ever;
            without a name a budget of a runtime is for what its own process spends.

    Example:
        >>> from treefold import Budget
        >>> Budget(usd=2, calls=100).usd
        Decimal('2')
    """

    usd: Decimal | float | None = None
    tokens: int | None = None
    seconds: float | None = None
    calls: int | None = None
    last_call: bool = False
    name: Annotated[str | None, VERBATIM] = None

    def __post_init__(self) -> None:
        limits = [name for name in _AMOUNTS if getattr(self, name) is not None]
        if not limits:
            raise InvalidValueError("a Budget bounds something: give usd, tokens, seconds or calls")
        for name in limits:
            force_setattr(self, name, _limit(name, getattr(self, name)))
        try:
            force_setattr(self, "last_call", exact_flag(self.last_call))
        except TypeError as error:
            raise InvalidValueError(f"the last_call of a budget {error}") from None
        try:
            force_setattr(self, "name", None if self.name is None else exact_text(self.name))
        except TypeError as error:
            raise InvalidValueError(f"the name of a budget {error}") from None


def _limit(name: str, value: Any) -> Any:
    """Return a limit as its type says."""
    exact = {"usd": _dollars, "seconds": exact_number}.get(name, index)
    try:
        amount = -1 if isinstance(value, bool) else exact(value)
    except TypeError:
        amount = -1
    if amount >= 0:
        return amount
    raise InvalidValueError(
        f"a budget of {name}={value!r} is none; give 0 or more, or leave {name} out for no limit"
    )


def _dollars(value: Any) -> Decimal:
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise InvalidValueError(f"usd={value!r} is no amount of US dollars") from None
    exact_number(amount)
    return amount


def amounts_in(text: str) -> Budget:
    """Return the amounts in a text such as "usd=5 tokens=200000" as a budget.

    Raises:
        InvalidValueError: there are none, or they are not amounts of a budget.
    """
    found: dict[str, Any] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        if name not in _AMOUNTS:
            raise InvalidValueError(
                f"{text!r} is no budget: give {', '.join(f'{one}=...' for one in _AMOUNTS)}"
            )
        try:
            found[name] = _AMOUNTS[name](value)
        except (ArithmeticError, ValueError):
            raise InvalidValueError(f"a budget of {word} is none; give a number") from None
    return Budget(**found)


def as_text(budget: Budget) -> str:
    """Return the amounts of *budget* as a text, which ``amounts_in`` reads."""
    amounts = {name: getattr(budget, name) for name in _AMOUNTS}
    return " ".join(f"{name}={value}" for name, value in amounts.items() if value is not None)


def combined(first: Budget | None, then: Budget) -> Budget:
    """Return *first* with the limits of *then* instead of its own, where *then* has any."""
    if first is None:
        return then
    amounts = {name: getattr(then, name) for name in _AMOUNTS}
    return replace(first, **{name: one for name, one in amounts.items() if one is not None})


def raised(budget: Budget, to: Budget) -> Budget:
    """Return *budget* with each limit that it has raised to that of *to*, if that is higher."""
    pairs = {name: (getattr(budget, name), getattr(to, name)) for name in _AMOUNTS}
    higher = {
        name: max(old, new)
        for name, (old, new) in pairs.items()
        if old is not None and new is not None
    }
    return replace(budget, **higher)
