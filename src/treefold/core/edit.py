"""The changes of a fork, and their JSON form."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from treefold.core.errors import InvalidValueError
from treefold.core.truncation import truncated_repr


class _Unchanged(Enum):
    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged.UNCHANGED


@dataclass(slots=True, frozen=True, kw_only=True)
class Edit:
    """The changes of a fork.

    Attributes:
        prompt: the new first prompt of an agent.
        model: the model that an agent uses from there on.
        system: the system prompt that an agent has from there on.
        args: the new arguments of the call.
        result: the new result of the call, which is then not made.

    Example:
        >>> from treefold import Edit, MemoryStore, Runtime, agent
        >>> from treefold.testing import ScriptedModel
        >>> @agent
        ... def greet(name: str) -> str:
        ...     return f"Greet {name}."
        >>> with Runtime([greet], models=ScriptedModel("Hi!", "Moin!"), store=MemoryStore()) as run:
        ...     node = run.invoke(greet, {"name": "Ada"})
        ...     node.result()
        ...     run.fork(node, edit=Edit(prompt="Greet Ada in Low German.")).result()
        'Hi!'
        'Moin!'
    """

    prompt: str | None = None
    model: Any = None
    system: str | None = None
    args: Mapping[str, Any] | None = None
    result: Any = UNCHANGED


def edit_as_data(edit: Edit | None) -> dict[str, Any]:
    """Return the edit of a fork as JSON data."""
    edit = edit or Edit()
    names = ("prompt", "model", "system", "args")
    fields = {name: getattr(edit, name) for name in names}
    data = {name: value for name, value in fields.items() if value is not None}
    return data if edit.result is UNCHANGED else data | {"result": edit.result}


def edit_of(data: Mapping[str, Any]) -> Edit:
    """Return the edit of a fork from its JSON form.

    Raises:
        InvalidValueError: *data* has a field that an Edit does not have.
    """
    try:
        return Edit(**data)
    except TypeError as error:
        raise InvalidValueError(
            f"not a valid edit of a fork: {truncated_repr(data, 100)}"
        ) from error
