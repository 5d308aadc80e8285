"""Dataclasses whose methods are generated when they are first used.

``dataclasses.dataclass`` compiles three methods for every class, six for a frozen one, which would
be a third of the time that ``from treefold import Runtime`` takes. A program uses few of them.
"""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")

_COMPARING: Final = ("__eq__", "__hash__")
_GENERATED: Final = ("__init__", "__repr__", *_COMPARING)


@dataclass_transform(field_specifiers=(field,))
def lazy_dataclass(
    *, frozen: bool = False, kw_only: bool = False, eq: bool = True
) -> Callable[[type[T]], type[T]]:
    """Make a dataclass with slots; the parameters are those of ``dataclasses.dataclass``."""

    def decorate(cls: type[T]) -> type[T]:
        # Otherwise dataclass writes the signature there, which takes long.
        cls.__doc__ = cls.__doc__ or cls.__name__
        # With these options it compiles no method.
        made: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
        for name in _GENERATED:
            # Defining __eq__ sets __hash__ to None.
            is_defined = vars(cls).get(name) is not None
            if not is_defined and (eq or name not in _COMPARING):
                setattr(made, name, _Method(made, name, frozen=frozen))
        if frozen:
            made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
            made.__getstate__, made.__setstate__ = _get_state, _set_state
        elif eq:
            made.__hash__ = None
        return made

    return decorate


class _Method:
    """Replaces itself with the method that ``dataclasses.dataclass`` generates."""

    __slots__ = ("_cls", "_frozen", "_name")

    def __init__(self, cls: type, name: str, *, frozen: bool) -> None:
        self._cls, self._name, self._frozen = cls, name, frozen

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = _generate(self._cls, self._name, frozen=self._frozen)
        setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)


def _generate(cls: Any, name: str, *, frozen: bool) -> Any:
    """Return the method *name* of a dataclass that has the fields of *cls*."""
    found = fields(cls)
    twin: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__annotations__": {one.name: one.type for one in found},
        **{one.name: one for one in found},
    }
    if hasattr(cls, "__post_init__"):
        twin["__post_init__"] = cls.__post_init__
    generate = dataclass(
        init=name == "__init__",
        repr=name == "__repr__",
        eq=name == "__eq__",
        unsafe_hash=name == "__hash__",
        frozen=frozen and name == "__init__",
    )
    made: type[Any] = generate(type(cls.__name__, (), twin))
    return vars(made)[name]


def _refuse_to_set(_self: object, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    """Set the fields of a copy, which ``copy`` and ``pickle`` make without ``__init__``."""
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
