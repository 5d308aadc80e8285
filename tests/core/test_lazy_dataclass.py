"""Lazy dataclasses behave as those of the standard library."""

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import (
    FrozenInstanceError,
    asdict,
    dataclass,
    field,
    fields,
    is_dataclass,
    replace,
)
from typing import Any, ClassVar

import pytest

from treefold.core.lazy_dataclass import lazy_dataclass

Decorator = Callable[[type], Any]


def point(decorate: Decorator) -> Any:
    class Point:
        """A point."""

        unit: ClassVar[str] = "m"

        x: int
        y: int = 0
        label: str = field(default="", compare=False, repr=False)
        tags: list[str] = field(default_factory=list[str], metadata={"json": None}, hash=False)
        number: int = field(default=0, kw_only=True)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x is negative")

    return decorate(Point)


KINDS = pytest.mark.parametrize(
    "options",
    [{}, {"frozen": True}, {"kw_only": True}, {"frozen": True, "kw_only": True}, {"eq": False}],
    ids=str,
)


@KINDS
def test_it_is_the_same_as_a_dataclass_with_slots(options: dict[str, bool]):
    lazy, plain = (point(make(**options)) for make in (lazy_dataclass, with_slots))
    assert inspect.signature(lazy) == inspect.signature(plain)
    assert repr(lazy(x=1, y=2, label="a")) == repr(plain(x=1, y=2, label="a"))
    assert (lazy(x=1, label="a") == lazy(x=1)) is (plain(x=1, label="a") == plain(x=1))
    assert (lazy(x=1) == lazy(x=2)) is (plain(x=1) == plain(x=2))
    assert lazy.__match_args__ == plain.__match_args__
    assert lazy.__slots__ == plain.__slots__
    assert lazy.__init__.__qualname__ == plain.__init__.__qualname__
    assert lazy.__init__.__module__ == plain.__init__.__module__
    assert [str(one) for one in fields(lazy)] == [str(one) for one in fields(plain)]
    assert asdict(lazy(x=1, tags=["a"])) == asdict(plain(x=1, tags=["a"]))
    assert asdict(replace(lazy(x=1), y=3)) == asdict(replace(plain(x=1), y=3))


def with_slots(**options: bool) -> Decorator:
    return dataclass(slots=True, **options)


@KINDS
def test_its_hash_is_that_of_a_dataclass(options: dict[str, bool]):
    lazy, plain = (point(make(**options)) for make in (lazy_dataclass, with_slots))
    if plain.__hash__ is None:
        assert lazy.__hash__ is None
        with pytest.raises(TypeError, match="unhashable"):
            hash(lazy(x=1))
    elif options.get("eq") is False:
        assert lazy.__hash__ is object.__hash__
    else:
        assert hash(lazy(x=1, y=2)) == hash(plain(x=1, y=2))


def test_an_argument_that_is_missing_is_reported_with_the_name_of_the_class():
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing .* argument: 'x'"):
        point(lazy_dataclass())()


def test_post_init_is_called():
    with pytest.raises(ValueError, match="x is negative"):
        point(lazy_dataclass(frozen=True))(-1)


def test_a_frozen_one_cannot_be_changed():
    origin = point(lazy_dataclass(frozen=True))(0)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        origin.x = 1
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del origin.x
    assert origin.x == 0


@lazy_dataclass(frozen=True)
class Frozen:
    """Pickled by its name."""

    text: str
    parts: tuple[str, ...] = ()


@lazy_dataclass()
class Changing:
    """Pickled by its name."""

    text: str


@pytest.mark.parametrize("value", [Frozen("a", ("b",)), Changing("a")], ids=repr)
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))]
)
def test_a_copy_is_equal(value: Any, copied: Callable[[Any], Any]):
    assert copied(value) == value
    assert copied(value) is not value


def test_methods_that_the_class_defines_are_kept():
    @lazy_dataclass(frozen=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named)

    assert repr(Named("a")) == "<a>"
    assert Named("a") == Named("b")
    assert hash(Named("a")) != hash(Named("b"))


def test_a_class_inherits_fields_and_can_call_the_methods_of_its_base():
    @lazy_dataclass()
    class Base:
        node: int
        number: int = field(default=0, kw_only=True, compare=False)

    @lazy_dataclass()
    class Derived(Base):
        at: float = 1.0

    class Plain(Derived):
        def __init__(self, node: int) -> None:
            super().__init__(node, 5.0, number=2)

    derived = Plain(7)
    assert (derived.node, derived.at, derived.number) == (7, 5.0, 2)
    assert repr(Derived(7)) == f"{Derived.__qualname__}(node=7, number=0, at=1.0)"
    assert Derived(7) == Derived(7, number=3)
    assert Derived(7) != Base(7)
    assert is_dataclass(Derived)
    match Derived(7, 2.0):
        case Derived(node, at):
            assert (node, at) == (7, 2.0)
