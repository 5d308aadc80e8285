"""Forms: what a person may give for the JSON Schema of a question, and what is refused."""

from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from treefold.core.answer_form import checked_value, fields_of
from treefold.core.answer_type import AnswerType
from treefold.core.errors import DefinitionError, InvalidValueError


class Colour(Enum):
    Red = "red"
    Blue = "blue"


class Guest(BaseModel):
    name: str
    age: int | None = None


class Trip(BaseModel):
    city: Annotated[str, Field(min_length=2)]
    nights: Annotated[int, Field(ge=1)] = 2
    start: date
    colour: Colour = Colour.Red
    guests: list[Guest] = []

    @field_validator("city")
    @classmethod
    def known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("there is no such city")
        return city


def read(kind: Any, given: Any) -> Any:
    """Return what *given* is as an answer of that type."""
    wanted = AnswerType[Any](kind)
    assert wanted.form is not None
    return wanted.read(checked_value(wanted.form, given, "no"))


@pytest.mark.parametrize(
    ("kind", "given", "meant"),
    [
        (int, "3", 3),
        (int, 3, 3),
        (float, "2.5", 2.5),
        (bool, "yes", True),
        (bool, "false", False),
        (bool, True, True),
        (date, "2026-05-31", date(2026, 5, 31)),
        (datetime, "2026-05-31T09:30:00Z", datetime.fromisoformat("2026-05-31T09:30:00Z")),
        (Decimal, "2.50", Decimal("2.50")),
        (Colour, "red", Colour.Red),
        (Literal[1, 2], "2", 2),
        (list[str], '["a", "b"]', ["a", "b"]),
        (list[int], [1, 2], [1, 2]),
        (int | None, "null", None),
        (str | None, "12", "12"),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (tuple[int, str], '[1, "a"]', (1, "a")),
    ],
)
def test_an_answer_is_json_or_a_plain_word(kind: Any, given: Any, meant: Any):
    assert read(kind, given) == meant


def test_an_object_is_an_answer():
    trip = read(Trip, '{"city": "Rome", "start": "2026-05-31", "guests": [{"name": "Anna"}]}')
    assert trip == Trip(city="Rome", start=date(2026, 5, 31), guests=[Guest(name="Anna")])


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        (int, "many", "it must be a whole number, got 'many'"),
        (int, "2.5", "it must be a whole number, got 2.5"),
        (int, "true", "it must be a whole number, got True"),
        (bool, "perhaps", "it must be true or false, got 'perhaps'"),
        (date, "tomorrow", "it must be a date such as 2026-05-31, got 'tomorrow'"),
        (Colour, "green", 'it must be "red" or "blue", got \'green\''),
        (list[int], '[1, "b"]', "[1] must be a whole number, got 'b'"),
        (int | None, "some", "it must be a whole number, got 'some'"),
        (Trip, "Rome", "it must be an object, got 'Rome'"),
        (Trip, '{"city": "Rome"}', "start is missing"),
        (
            Trip,
            '{"city": "R", "nights": 0, "start": "soon", "guests": [{"age": 3}]}',
            "city must have at least 2 characters, got 'R'; nights must be at least 1, got 0;"
            " start must be a date such as 2026-05-31, got 'soon'; guests[0].name is missing",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_words(kind: Any, given: Any, why: str):
    with pytest.raises(InvalidValueError) as refused:
        read(kind, given)
    assert str(refused.value) == f"no: {why}"


def test_the_type_may_know_more_than_its_schema():
    with pytest.raises(InvalidValueError, match="city: Value error, there is no such city"):
        read(Trip, '{"city": "Atlantis", "start": "2026-05-31"}')


def test_texts_and_choices_need_no_form():
    assert AnswerType[str](str).form is None
    choice = AnswerType[Any](Literal["a", "b"])
    assert (choice.form, choice.choices) == (None, ("a", "b"))


def test_what_pydantic_cannot_describe_is_no_type():
    with pytest.raises(DefinitionError, match="pydantic can describe"):
        AnswerType[Any](object())


def test_the_fields_of_a_form_have_their_definitions():
    form = AnswerType[Trip](Trip).form
    assert form is not None
    fields = {field.name: field for field in fields_of(form)}
    assert list(fields) == ["city", "nights", "start", "colour", "guests"]
    assert fields["colour"].form["enum"] == ["red", "blue"]
    assert [name for name, field in fields.items() if field.is_required] == ["city", "start"]
    assert (fields["nights"].default, fields_of({"type": "integer"})) == (2, [])
