"""Which functions may call which, in the cases that the guides leave open."""

from collections.abc import Sequence

import pytest

from treefold import CodeFunction, Function, Runtime
from treefold.core.errors import CallGraphError


class Knot(CodeFunction):
    """A function whose 'uses' can be tied later."""

    def __init__(self, name: str, *, uses_recursion: bool = False) -> None:
        super().__init__(name=name, callable=lambda ctx: None, uses_recursion=uses_recursion)
        self.tied: Sequence[Function] = ()

    @property
    def uses(self) -> Sequence[Function]:
        return self.tied


def test_a_circle_is_taken_if_one_function_on_it_says_so():
    one, two = Knot("one", uses_recursion=True), Knot("two")
    one.tied, two.tied = [two], [one]
    assert set(Runtime([one]).invocable_functions) == {"one", "two"}


def test_a_fault_names_the_whole_way_to_it():
    def code(name: str, *uses: Function) -> CodeFunction:
        return CodeFunction(name=name, callable=lambda ctx: None, uses=uses)

    top = code("top", code("middle", code("twin")), code("twin"))
    with pytest.raises(CallGraphError, match="top > middle > twin: two functions are called"):
        Runtime([top])
