"""The ``@agent`` decorator, for a Python function whose body builds the prompt."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Final, Generic, Unpack, overload

from treefold.agents.function import AgentFunction, SharedOptions
from treefold.agents.prompts import SystemPrompt
from treefold.core.errors import DefinitionError
from treefold.core.function import Q, R_co, RunContext, T
from treefold.core.model import Model
from treefold.core.other_names import either
from treefold.core.parameters import Parameters
from treefold.core.provider import Provider
from treefold.core.signature import Kind, Signature, description_of, name_of, underlying
from treefold.core.suggestions import did_you_mean

_OTHER_NAMES: Final = frozenset({"instructions", "max_turns", "output_type", "tools"})
_OPTIONS: Final = frozenset({"returns", *SharedOptions.__annotations__}) - _OTHER_NAMES


class PromptOptions(SharedOptions, total=False):
    """The options of ``@agent``, but for *returns*."""

    system: SystemPrompt
    model: Model | Provider | str | None
    name: str | None


class PromptFunction(AgentFunction[..., Any]):
    """An agent whose prompt is built by a Python function; its arguments are the function's."""

    _builds_prompt = True

    def __init__(self, builder: Callable[..., Any], name: str | None, **options: Any) -> None:
        if Kind.of(builder) is Kind.STREAM or inspect.isgeneratorfunction(underlying(builder)):
            raise DefinitionError(
                f"agent {name_of(builder)!r} must return its prompt, not yield it"
            )
        if options.get("returns") is None and options.get("output_type") is None:
            _check_returns_prompt(builder)
        self._builder = builder
        self._signature = Signature(name or name_of(builder), builder)
        given = options.pop("description", None)
        about = description_of(builder) if given is None else given
        super().__init__(name or name_of(builder), about, **options)
        self.__doc__ = inspect.getdoc(underlying(builder)) or ""
        self.__name__ = self.name
        self.__wrapped__ = builder

    def __repr__(self) -> str:
        return f"<AgentFunction {self.name}>"

    @property
    def parameters(self) -> Parameters:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._signature.parameters

    def prompt_definition(self) -> list[Any]:
        return [*super().prompt_definition(), self._builder]

    async def prompt(self, ctx: RunContext, args: Mapping[str, Any]) -> str:
        values = dict(args)
        self._signature.inject(values, ctx)
        text = self._signature.call(**values)
        if inspect.isawaitable(text):
            text = await text
        if not isinstance(text, str):
            raise DefinitionError(f"agent {self.name!r} must return its prompt, not {text!r}")
        return text


def _check_returns_prompt(builder: Callable[..., Any]) -> None:
    """Raise DefinitionError if *builder* is annotated with the result that a model should return.

    Annotations that are not plain classes, such as Any and postponed ones, are not checked.
    """
    try:
        annotation = getattr(underlying(builder), "__annotations__", {}).get("return")
    except NameError:  # from Python 3.14 on, a name that is not defined yet
        return
    if not isinstance(annotation, type) or hasattr(annotation, "__await__") or annotation is Any:
        return
    try:
        if issubclass(annotation, str) or issubclass(str, annotation):
            return
    except TypeError:  # a protocol that cannot be checked
        return
    name = annotation.__name__
    raise DefinitionError(
        f"agent {name_of(builder)!r} is annotated to return {name}, but its function returns the"
        f" prompt: write '-> str', and @agent(returns={name}) for the result of the model"
    )


class AgentDecorator(Generic[R_co]):
    """The decorator that ``@agent(...)`` evaluates to."""

    def __init__(self, name: str | None, options: Mapping[str, Any]) -> None:
        self._name = name
        self._options = options

    @overload
    def __call__(
        self, builder: Callable[Concatenate[RunContext[Any], Q], Any], /
    ) -> AgentFunction[Q, R_co]: ...

    @overload
    def __call__(self, builder: Callable[Q, Any], /) -> AgentFunction[Q, R_co]: ...

    def __call__(self, builder: Callable[..., Any], /) -> AgentFunction[..., Any]:
        """Make an agent whose prompt *builder* returns."""
        return PromptFunction(builder, self._name, **self._options)


@overload
def agent(fn: Callable[Concatenate[RunContext[Any], Q], Any], /) -> AgentFunction[Q, str]: ...


@overload
def agent(fn: Callable[Q, Any], /) -> AgentFunction[Q, str]: ...


@overload
def agent(*, returns: None = None, **options: Unpack[PromptOptions]) -> AgentDecorator[str]: ...


@overload
def agent(*, returns: type[T], **options: Unpack[PromptOptions]) -> AgentDecorator[T]: ...


@overload
def agent(*, output_type: type[T], **options: Unpack[PromptOptions]) -> AgentDecorator[T]: ...


# A union, for example, is no ``type`` for type checkers.
@overload
def agent(
    *, returns: Any = None, output_type: Any = None, **options: Unpack[PromptOptions]
) -> AgentDecorator[Any]: ...


def agent(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    system: SystemPrompt = "",
    model: Model | Provider | str | None = None,
    name: str | None = None,
    **options: Any,
) -> AgentFunction[..., Any] | AgentDecorator[Any]:
    """Call tree: make an AgentFunction, which a model carries out; the function builds its prompt.

    It makes no ``Agent``: that is a queue of turns, without a model.

    The agent has the arguments of the function, of any type that pydantic can describe, its
    docstring unless *description* is given, and its name unless *name* is given. *system* is the
    system prompt, or a function of the RunContext that returns it, and *model* the default model.
    The other options are those of AgentFunction: *uses*, *returns*, *model_tools*, *max_steps*,
    *parallel_tools*, *compaction*, *settings*, *budget*, *tags*, *repeatable*, *remote*, *ask*,
    *max_result_chars*, *uses_recursion* and *max_depth*. The names of other libraries are accepted,
    too: *instructions* for system, *tools* for uses, *output_type* for returns, *max_turns* for
    max_steps.

    Example:
        >>> from treefold import Runtime, agent
        >>> from treefold.testing import ScriptedModel
        >>> @agent(system="You are a translator.")
        ... def translate(text: str, language: str = "English") -> str:
        ...     "Translate a text."
        ...     return f"Translate into {language}: {text}"
        >>> with Runtime([translate], models=ScriptedModel("Good morning!")) as runtime:
        ...     runtime.invoke(translate, {"text": "Guten Morgen!"}).result()
        'Good morning!'
    """

    if fn is not None and not callable(fn):
        raise DefinitionError(
            f"@agent decorates a function that returns a prompt, not {fn!r}: write system=... for a"
            " system prompt; a queue of turns is Agent(name, description, tools)"
        )
    instructions = options.pop("instructions", None)
    system = either("@agent", "system", system or None, "instructions", instructions) or ""
    if unknown := options.keys() - _OPTIONS - _OTHER_NAMES:
        names = ", ".join(sorted(unknown))
        known = ["system", "model", "name", *sorted(_OPTIONS)]
        hints = (did_you_mean(name, known, then=" ") for name in sorted(unknown))
        raise DefinitionError(
            f"@agent has no option {names}; {''.join(hints)}it has {', '.join(known)}"
        )

    options |= {"system_prompt": system or None, "default_model": model}
    decorate = AgentDecorator[Any](name, options)
    return decorate if fn is None else decorate(fn)
