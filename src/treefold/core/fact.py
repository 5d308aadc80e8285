"""``Fact``: frozen data that is declared once, for journals, for programs and for their schema.

Journals (``core.journaling``), JSON for other programs (``core.json_form``) and the JSON Schema of
that are all derived from the fields of a class. What a field means beyond its type is said with
``Annotated``, by the marks below. So a new event is one class, and what it
changes; what forks keep of it is in ``core.forking``.
"""

import json
import sys
import threading
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import force_setattr as force_setattr, replace as replace

from treefold.core.scalars import exact

T = TypeVar("T")

# The marks of fields.
HIDDEN: Final = Meta(extra={"mark": "hidden"})  # not in the JSON for other programs
COLUMN: Final = Meta(extra={"mark": "column"})  # in the journal, a column of the entry has it
VERBATIM: Final = Meta(extra={"mark": "verbatim"})  # compared with new ones, so never redacted
UNCOMPARED: Final = Meta(extra={"mark": "uncompared"})  # does not count when facts are compared

# A number that is not infinite and not NaN. A time or a duration that is read has to be one, from
# whatever it is read: a timer for NaN never ends, and the json module reads NaN.
Finite: TypeAlias = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class Fact(Struct, frozen=True, omit_defaults=True):
    """Frozen data with declared fields.

    A subclass repeats ``frozen=True``: type checkers do not inherit it.
    """

    json_properties: ClassVar[tuple[str, ...]] = ()  # that are in its JSON form beside its fields

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        compared = _compared(type(self))
        return compared(self) == compared(other)

    def __hash__(self) -> int:
        return hash(_compared(type(self))(self))


class Field(NamedTuple):
    """A field of a ``Fact``: its name, its name in JSON, its type, its default and its marks."""

    name: str
    json_name: str
    hint: Any
    default: Any  # msgspec.NODEFAULT: there is none
    marks: tuple[Meta, ...]


@cache
def fields_of(kind: type[Struct]) -> tuple[Field, ...]:
    """Return the fields of *kind*."""
    found: list[Field] = []
    for one in msgspec.structs.fields(kind):
        hint, marks = one.type, tuple[Meta, ...]()
        if get_origin(hint) is Annotated:
            hint, *rest = get_args(hint)
            marks = tuple([mark for mark in rest if isinstance(mark, Meta)])
        if get_origin(hint) in {Union, UnionType}:
            # Of types that have marks themselves, such as ``Finite | None``.
            hint = Union[tuple(map(_without_marks, get_args(hint)))]  # noqa: UP007 - not known here
        default = one.default
        if one.default_factory is not msgspec.NODEFAULT:
            default = one.default_factory()
        found.append(Field(one.name, one.encode_name, hint, default, marks))
    return tuple(found)


def _without_marks(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


@cache
def _compared(kind: type[Struct]) -> Callable[[Any], Any]:
    names = [one.name for one in fields_of(kind) if UNCOMPARED not in one.marks]
    return attrgetter(*names) if names else lambda _: ()


# How facts are read. msgspec describes a class to itself when it is first read, and a thread that
# reads the class while another one does so ends the process by a segmentation fault. So classes are
# described by one thread at a time, and read afterwards.

_describing: Final = threading.Lock()


def decode(text: str | bytes, kind: type[T]) -> T:
    """Return the value of this *kind* in a JSON text.

    Raises:
        MsgspecError: there is none.
    """
    try:
        return _decoder_of(kind).decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # It does not accept lone surrogates; the json module does.
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if data is None:
            raise
    return convert(data, kind)


def convert(data: Any, kind: type[T]) -> T:
    """Return the value of this *kind* of which *data* are the builtins.

    Raises:
        MsgspecError: there is none.
    """
    _decoder_of(kind)
    return msgspec.convert(data, kind)


@cache
def _decoder_of(kind: Any) -> "msgspec.json.Decoder[Any]":
    with _describing:
        return msgspec.json.Decoder(kind)


_ENCODER: Final = msgspec.json.Encoder(enc_hook=exact)


def encode(value: Any) -> str:
    """Return a fact, or the data of one, as the JSON text that ``decode`` reads."""
    try:
        return _ENCODER.encode(value).decode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form; the json module writes it as an escape.
        return json.dumps(msgspec.to_builtins(value, enc_hook=exact), separators=(",", ":"))


# How facts are written, as JSON data for a journal or for other programs. A ``Write`` gets a value
# that is not None and what its writer needs to know; None stands for one that writes it unchanged.

Write = Callable[[Any, Any], Any]


def writer_of(
    hint: Any,
    leaf: Callable[[Any], Write | None],
    facts: Callable[[tuple[type[Fact], ...]], Write],
    array: Callable[[Write | None], Write | None],
) -> Write | None:
    """Return how values of the declared type *hint* are written, except None.

    Args:
        leaf: returns how values of a type are written that has no facts in it.
        facts: returns how facts are written that are of one of these classes.
        array: returns how a tuple is written, by how each of its items is.
    """
    kinds = (hint,)
    if get_origin(hint) in {Union, UnionType}:
        kinds = tuple([kind for kind in get_args(hint) if kind is not NoneType])
        # There are no other unions than those of facts, which are told apart by a tag.
        hint = kinds[0]
    if get_origin(hint) is tuple:
        return array(writer_of(get_args(hint)[0], leaf, facts, array))
    if isinstance(hint, type) and issubclass(hint, Fact):
        return facts(kinds)
    return leaf(hint)


def tag_of(kind: type[Struct]) -> str | int | None:
    """Return what tells facts of this *kind* apart in a union; None if they are in none."""
    return kind.__struct_config__.tag
