"""Values as plain JSON data and back."""

from typing import Any

from ramify.core.errors import SerializationError


def to_plain(value: Any, what: str) -> Any:
    """Return *value* as data that ``json.dumps`` accepts.

    Raises:
        SerializationError: it has no JSON form; *what* says in the message what it is.
    """
    from pydantic_core import PydanticSerializationError, to_jsonable_python  # noqa: PLC0415 - slow

    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:
        raise SerializationError(
            f"{what} has no JSON form ({error}); use plain data, a dataclass or a pydantic model"
        ) from None


def from_plain(annotation: Any, value: Any) -> Any:
    """Return plain data as *annotation* would have it, or as it is if it does not fit that."""
    from pydantic import PydanticUserError, TypeAdapter, ValidationError  # noqa: PLC0415 - slow

    try:
        return TypeAdapter(annotation).validate_python(value)
    except (PydanticUserError, ValidationError, NameError):
        return value
