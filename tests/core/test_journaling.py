"""Whatever is in the fields of an event: it is read again, or nobody could write it."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any, Final, get_args, get_origin

import pytest
from msgspec.structs import replace

from treefold import ModelText, TokenUsage, ToolResult, UserText
from treefold.core.agent_events import RateAwaited, RequestSent, ResponseCompleted
from treefold.core.errors import InvalidValueError
from treefold.core.events import CallEnded, CallRequested, Event, Failure
from treefold.core.fact import COLUMN, Fact, fields_of
from treefold.core.journaling import entry_of, events_of
from treefold.core.json_form import kinds_of
from treefold.core.states import NodeState
from treefold.core.store import Entry
from treefold.core.usage import NO_USAGE
from treefold.core.value_codec import ValueEncoder
from treefold.models import Exchange, Finish
from treefold.stores.rows import dump_question, load_question


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Number(float):
    pass


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


class Mine(ModelText, frozen=True, tag=True):
    pass


ODD: Final[list[Any]] = [
    None, 0, 1, 5, -3, True, 2**70, 3.0, 2.5, math.inf, math.nan, Whole(3), Number(2.5),
    Number(math.inf), Size.SMALL, Decimal("1.50"), Decimal("Infinity"), Fraction(1, 2),
    "text", "x" * 400, "caf\udce9", Text("text"), Text("y" * 400), Colour.RED, "answered", b"x",
    [], ["a"], (1,), [None], {"a": 1}, {1: 2}, {"$": 1}, {Text("a"): 1}, {("a",): 1}, {"a": {1: 2}},
    {"a": "caf\udce9"}, {"a": math.inf}, object(), ValueError("x"), Mine("mine"), TokenUsage(),
]  # fmt: skip


def sample(hint: Any) -> Any:
    """Return a value of a declared type."""
    if isinstance(hint, type) and issubclass(hint, Fact):
        return hint(**{one.name: sample(one.hint) for one in fields_of(hint)})
    if get_origin(hint) is tuple:
        return (sample(get_args(hint)[0]),)
    if get_origin(hint) is Mapping:
        return {"a": 1}
    if get_args(hint):
        return sample(get_args(hint)[0])
    if issubclass(hint, StrEnum):
        return next(iter(hint))
    known: dict[Any, Any] = {str: "1-1", int: 7, float: 1.5, bool: True, Decimal: Decimal("0.5")}
    return known.get(hint, "value")


def variants(hint: Any) -> Iterator[Any]:
    """Yield values for a field of a declared type, most of which do not fit it."""
    yield from ODD
    for kind in get_args(hint) or (hint,):
        if get_origin(hint) is tuple or get_origin(kind) is tuple:
            inner = get_args(hint)[0] if get_origin(hint) is tuple else get_args(kind)[0]
            yield from ((one,) for one in variants(inner))
            return
        if isinstance(kind, type) and issubclass(kind, Fact):
            yield from odd_facts(kind)


def odd_facts(kind: type[Fact]) -> Iterator[Any]:
    """Yield facts of a class with one odd value each."""
    whole = sample(kind)
    for one in fields_of(kind):
        for value in () if COLUMN in one.marks else variants(one.hint):
            with suppress(InvalidValueError):  # there is no such fact
                yield replace(whole, **{one.name: value})


def written(event: Event, encoder: ValueEncoder | None = None) -> Entry:
    return entry_of(event, encoder or ValueEncoder(), tree=1, number=1)


def read(entry: Entry) -> Any:
    if entry.question is not None:
        load_question(dump_question(entry.question))
    [event] = events_of([entry], entry.texts.__getitem__)
    repr(event)  # the exchange is read only now
    return event


KINDS: Final = [kind for kind in kinds_of(Event) if issubclass(kind, Event) and kind.recorded]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_odd_value_in_any_field_is_refused_when_it_is_written_or_can_be_read(kind: type[Event]):
    assert type(read(written(sample(kind)))) is kind
    for event in odd_facts(kind):
        for redact in None, str:
            with suppress(InvalidValueError):  # it is refused when it is written
                entry = written(event, ValueEncoder(redact))
                read(entry)


def completed(*parts: Any, usage: Any = NO_USAGE, **fields: Any) -> ResponseCompleted:
    given: dict[str, Any] = {"finish": Finish.ANSWERED, "sent": (), "received": (), **fields}
    exchange = Exchange(dialect="plain", usage=usage, **given)
    return ResponseCompleted(2, 1.0, exchange, parts, usage, Decimal("0.01"), step=1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (completed(usage=TokenUsage(input=3.0, output=Whole(2))).usage, None),  # pyright: ignore
        (TokenUsage(input=True), TokenUsage(input=1)),
    ],
)
def test_numbers_of_other_types_are_recorded_as_whole_numbers(given: Any, expected: Any):
    found = read(written(completed(usage=given))).usage
    assert found == (expected or TokenUsage(input=3, output=2))
    assert {type(found.input), type(found.output)} == {int}


def test_texts_of_classes_of_their_own_are_recorded_as_plain_texts():
    event = RequestSent(2, 1.0, (UserText(Text("Hi")), ToolResult(Colour.RED, Text("x" * 400))))
    text, result = read(written(event)).inputs
    assert [type(one) for one in (text.text, result.tool_use_id, result.content)] == [str] * 3
    assert (text.text, result.tool_use_id, result.content) == ("Hi", "red", "x" * 400)


def test_a_part_of_a_class_of_its_own_is_recorded_as_what_it_is_based_on():
    assert read(written(completed(Mine("Hello")))).parts == (ModelText("Hello"),)


def test_a_response_with_a_price_and_a_lone_surrogate_is_recorded():
    event = completed(ModelText("caf\udce9"))
    assert read(written(event)) == event


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (completed(ModelText(None)), "ModelText.text cannot be recorded: it has to be a text"),  # pyright: ignore
        (completed("Hi"), "ResponseCompleted.parts cannot be recorded: it has to be UserText or "),
        (completed(usage=TokenUsage(input=3.5)), "TokenUsage.input .* a whole number, not 3.5"),  # pyright: ignore
        (completed(finish="over"), "Exchange.finish .* one of 'answered', .* not 'over'"),
        (RateAwaited(2, 1.0, math.inf), "RateAwaited.seconds .* a finite number, not inf"),
        (
            CallRequested(2, 1, 1, 1, "add", {1: 2}),  # pyright: ignore
            "CallRequested.inputs .* a text, not 1",
        ),
    ],
)
def test_what_could_not_be_read_again_is_refused_with_the_name_of_its_field(
    event: Event, message: str
):
    with pytest.raises(InvalidValueError, match=message):
        written(event)


def test_an_exception_of_any_class_is_a_failure_that_can_be_recorded():
    odd = type("Odd", (Exception,), {"__module__": 5})
    event = CallEnded(2, NodeState.Error, 1.0, exception=Failure.of(odd(Text("no"))))
    assert read(written(event)).exception == Failure("Odd", "no")


def test_a_response_without_its_exchange_is_damaged():
    entry = written(completed(ModelText("Hello")))
    cut = replace(entry, body=entry.body.partition("\n")[0])
    with pytest.raises(ValueError, match="ResponseCompleted without an exchange"):
        read(cut)
    other = written(RequestSent(2, 1.0, ()))
    with pytest.raises(ValueError, match="RequestSent with an exchange"):
        read(replace(other, body=f"{other.body}\n{{}}"))
