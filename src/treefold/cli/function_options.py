"""The arguments of a function as options of ``treefold run``: ``--name value``.

They are known only when the function is loaded, so click collects what it does not know, and this
module reads it. A parameter that is called like an option of the command itself is given as
``--arg NAME=VALUE``.
"""

import inspect
import re
from collections.abc import Collection, Sequence
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import click

from treefold.cli.loading import load_function
from treefold.cli.options import Command, read_value
from treefold.core.errors import InvalidValueError, TreefoldError
from treefold.core.function import Function
from treefold.core.parameter import Parameter
from treefold.core.suggestions import did_you_mean
from treefold.core.truncation import truncated_repr
from treefold.views.text import readable

_PREFIX: Final = "--"
_NAME: Final = re.compile(r"--[^=]+")
_GIVEN: Final = "treefold.given_arguments"


class FunctionCommand(Command):
    """A command whose argument *target* is a function, and whose help shows the function's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = self._with_dashed_values(ctx, args)
        ctx.meta[_GIVEN] = list(args)  # --help is handled before the arguments are
        return super().parse_args(ctx, args)

    def _with_dashed_values(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return *args* with ``--name=-value`` for ``--name -value``.

        Click would take each letter of the value that is an option of the command out of it.
        """
        own = _own_options(self, ctx)
        letters = "".join(one[1] for one in own if not one.startswith(_PREFIX))
        joined: list[str] = []
        for word in args:
            before = joined[-1] if joined else ""
            is_named = _NAME.fullmatch(before) is not None and before not in own
            is_dashed = word.startswith("-") and not word.startswith(_PREFIX)
            if is_named and is_dashed and word.strip("-" + letters):
                joined[-1] = f"{before}={word}"
            else:
                joined.append(word)
        return joined

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        given, _, _ = self.make_parser(ctx).parse_args(ctx.meta.get(_GIVEN, []))
        if not isinstance(target := given.get("target"), str):
            return
        try:
            function = load_function(target)
        except TreefoldError as error:
            formatter.write(f"\n{readable(str(error))}\n")
            return
        own = _own_options(self, ctx)
        rows = [_described(one, function, own) for one in function.parameters.items]
        with formatter.section(f"arguments of {function.name}"):
            formatter.write_dl(rows or [("none", "")])


def _own_options(command: click.Command, ctx: click.Context) -> set[str]:
    return {
        option for one in command.get_params(ctx) for option in (*one.opts, *one.secondary_opts)
    }


def _described(parameter: Parameter, function: Function, taken: Collection[str]) -> tuple[str, str]:
    """Return how *parameter* is given, which differs if its name is *taken*, and what it is."""
    name, annotation = parameter.name, parameter.annotation
    kind = "JSON" if annotation is Any else inspect.formatannotation(annotation)
    default = f"by default {truncated_repr(parameter.default)}"
    # Descriptions in a docstring are in the schema only.
    described = function.parameters.json_schema.get("properties", {}).get(name, {})
    text = described.get("description", "").removesuffix(".")
    parts = [text, "required" if parameter.required else default]
    option = _option(name)
    given = f"--arg {name}={kind}" if option in taken else f"{option} {kind}"
    return given, "; ".join(filter(None, parts))


def read_options(
    command: click.Command, function: Function, words: Sequence[str]
) -> dict[str, Any]:
    """Return the arguments of *function* that *words* give: ``--name value`` or ``--name=value``.

    A dash in a name stands for an underscore. The value for a parameter of type ``str`` is the text
    itself; any other is JSON, or text if it is not JSON. A parameter of type ``bool`` needs no
    value.

    Raises:
        InvalidValueError: the function has no such parameter, or a value is missing.
    """
    parameters = {_option(one.name): one for one in function.parameters.items}
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        option, equals, value = left.pop(0).partition("=")
        option = option.replace("_", "-")
        if option not in parameters:
            raise _unknown(option, command, function, list(parameters))
        parameter = parameters[option]
        if not equals and parameter.annotation is bool and not _is_value(left):
            found[parameter.name] = True
            continue
        if not equals and not left:
            raise InvalidValueError(f"{option} needs a value")
        text = value if equals else left.pop(0)
        if parameter.annotation is bool:
            text = text.lower()  # True, as in Python, is no JSON
        found[parameter.name] = text if _takes_text(parameter) else read_value(text)
    return found


def _takes_text(parameter: Parameter) -> bool:
    """Whether a parameter takes a text, and nothing else but None."""
    annotation = parameter.annotation
    is_union = get_origin(annotation) in {Union, UnionType}
    kinds = get_args(annotation) if is_union else (annotation,)
    return set(kinds) - {NoneType} == {str}


def _is_value(words: Sequence[str]) -> bool:
    return bool(words) and words[0].lower() in {"true", "false"}


def _option(name: str) -> str:
    return _PREFIX + name.replace("_", "-")


def _unknown(
    option: str, command: click.Command, function: Function, parameters: Sequence[str]
) -> InvalidValueError:
    if not option.startswith(_PREFIX):
        return InvalidValueError(
            f"{option!r} is neither an option nor the value of one; write --name value"
        )
    own = [one for param in command.params for one in param.opts if one.startswith(_PREFIX)]
    hint = did_you_mean(option, [*parameters, *own], then=" ")
    takes = ", ".join(parameters) or "no arguments"
    return InvalidValueError(f"there is no option {option}; {hint}{function.name} takes {takes}")
