"""``AnswerType``: the type of the answer that a function asks a person for."""

import json
from typing import Any, Final, Generic, Literal, TypeVar, cast, get_args, get_origin

from treefold.core.errors import DefinitionError, InvalidValueError
from treefold.core.plain import explained, to_plain

T = TypeVar("T")

_NOT_A_TYPE: Final = (
    "the answer to a question is of a type that pydantic can describe, such as bool,"
    " Literal['a', 'b'] or a model"
)


class AnswerType(Generic[T]):
    """Describes the answers to a question, and reads them.

    Attributes:
        choices: the possible answers, if all of them are texts.
        form: the JSON Schema of an answer; None if it is a text, or one of *choices*.

    Raises:
        DefinitionError: pydantic has no JSON Schema for the type.
    """

    def __init__(self, annotation: Any) -> None:
        from pydantic import PydanticUserError, TypeAdapter  # noqa: PLC0415 - slow

        values = get_args(annotation) if get_origin(annotation) is Literal else ()
        is_literal = bool(values) and all(isinstance(value, str) for value in values)
        self.choices: tuple[str, ...] = values if is_literal else ()
        self.form: dict[str, Any] | None = None
        try:
            self._adapter = TypeAdapter[T](annotation)
            if annotation is not str and not is_literal:
                self.form = self._adapter.json_schema()
        except (PydanticUserError, NameError, TypeError) as error:
            raise DefinitionError(f"{_NOT_A_TYPE}, not {annotation!r}: {error}") from None

    def read(self, text: str) -> T:
        """Return the answer that was given as *text*: JSON, if there is a form.

        Raises:
            InvalidValueError: it is not valid for the type.
        """
        from pydantic import ValidationError  # noqa: PLC0415 - slow

        try:
            if self.form is None:
                return self._adapter.validate_python(text)
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise InvalidValueError(explained(error, "it")) from None

    def write(self, value: T) -> str:
        """Return *value* as the text of an answer.

        Raises:
            InvalidValueError: it is not valid for the type.
        """
        text = json.dumps(to_plain(value, "an answer")) if self.form else cast("str", value)
        self.read(text)
        return text
