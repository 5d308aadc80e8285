"""Journals to replay: each is made by a real run."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from treefold import CodeFunction, Function, Node, Runtime
from treefold.testing import HANGS, ScriptedModel
from treefold.testing.scripted import Script


class Tools:
    """Code whose calls are counted."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def look_up(self, name: str = "look_up", result: Any = None) -> CodeFunction:
        """A function that says what it was asked, or gives *result*, or raises it."""

        def look(ctx: Any, word: str) -> Any:
            self.made.append(f"{name} {word}")
            if isinstance(result, Exception):
                raise result
            return f"{name} says {word}" if result is None else result

        return CodeFunction(name=name, desc="Look something up.", callable=look)


def record(
    path: Path,
    function: Function,
    args: Mapping[str, Any],
    *script: Script,
    models: Any = None,
    answers: Sequence[str] = (),
    **options: Any,
) -> Node:
    """Run *function*, whatever comes of it, and return its node; people give *answers*."""
    models = models or ScriptedModel(*script)
    with Runtime([function], models=models, store=path, **options) as runtime:
        node = runtime.invoke(function, args)
        for answer in answers:
            for view in runtime.watch(node, timeout=10):
                if questions := runtime.questions():
                    runtime.answer(questions[0].id, answer)
                    break
                assert not view.state.final
        with suppress(Exception):
            node.result(timeout=60)
        return node


__all__ = ["HANGS", "Tools", "record"]
