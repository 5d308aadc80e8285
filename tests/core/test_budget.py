"""What a budget is made of, and what is none."""

import math
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest

from treefold import Budget
from treefold.core.errors import InvalidValueError
from treefold.core.fact import decode, encode


class Size(IntEnum):
    SMALL = 5


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seconds": math.inf}, "seconds=inf is none; give 0 or more, or leave seconds out"),
        ({"seconds": math.inf, "calls": 3}, "seconds=inf is none"),
        ({"usd": math.inf}, "usd=inf is none"),
        ({"usd": Decimal("Infinity")}, r"usd=Decimal\('Infinity'\) is none"),
        ({"seconds": math.nan}, "seconds=nan is none"),
        ({"seconds": True}, "seconds=True is none"),
        ({"calls": True}, "calls=True is none"),
        ({"tokens": 2.5}, "tokens=2.5 is none"),
        ({"tokens": -1}, "tokens=-1 is none"),
        ({"tokens": 5, "name": 5}, "the name of a budget has to be a text, not 5"),
        ({"tokens": 5, "last_call": "no"}, "the last_call of a budget has to be True or False"),
    ],
)
def test_a_budget_that_could_not_be_recorded_is_refused_at_once(
    wrong: dict[str, Any], message: str
):
    with pytest.raises(InvalidValueError, match=message):
        Budget(**wrong)


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"tokens": Size.SMALL, "last_call": 1}, Budget(tokens=5, last_call=True)),
        ({"seconds": Decimal("1.5"), "calls": 0}, Budget(seconds=1.5, calls=0)),
        ({"usd": 0.5, "name": Name("team")}, Budget(usd=Decimal("0.5"), name="team")),
    ],
)
def test_other_numbers_and_texts_become_plain_ones(given: dict[str, Any], same: Budget):
    budget: Any = Budget(**given)
    assert budget == same == decode(encode(budget), Budget)
    assert type(budget.name) in {str, type(None)}
    assert {type(budget.tokens), type(budget.calls)} <= {int, type(None)}
    assert type(budget.last_call) is bool
