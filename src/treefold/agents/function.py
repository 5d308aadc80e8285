"""``AgentFunction``: an agent as a Function, made of a prompt with a signature."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final, Literal, TypedDict, Unpack, overload

from treefold.agents.bounds import ReadResult
from treefold.agents.loop import found_model
from treefold.agents.prompts import SystemPrompt, filled, system_text, unknown_placeholders
from treefold.agents.results import ReturnResult
from treefold.agents.summarize import SUMMARIZE
from treefold.agents.task import Task, carry_out
from treefold.core.budget import Budget
from treefold.core.compaction import Compaction, compaction_of
from treefold.core.conversation import AgentConversation
from treefold.core.errors import (
    DefinitionError,
    InvalidValueError,
    UsageError,
)
from treefold.core.from_file import FromFile
from treefold.core.function import (
    Ask,
    Function,
    ModelFinder,
    Node,
    P,
    R_co,
    RunContext,
    T,
    checked_functions,
)
from treefold.core.json_schema import without_defaults
from treefold.core.model import Model, ModelSettings
from treefold.core.other_names import either
from treefold.core.parameter import FunctionArg
from treefold.core.parameters import Parameters
from treefold.core.provider import Provider
from treefold.models.failover import candidates, preferred, retry_primary
from treefold.runtime.calls.files import read_file

_KINDS: Final[Mapping[str, tuple[Any, str]]] = {
    "name": (str, "text"),
    "description": (str, "text"),
    "system_prompt": (str | FromFile | Callable, "text, a FromFile or a function of the context"),
    "user_prompt_template": (str | FromFile, "text or a FromFile"),
    "args": (Sequence, "a list of FunctionArgs"),
    "model_tools": (Mapping, "lists of functions by Provider"),
    "default_model": (Model | str | None, "a Model, a Provider or a name"),
    "max_steps": (int, "a number"),
    "settings": (ModelSettings, "a ModelSettings(...)"),
}
_READ_RESULT: Final = ReadResult()  # each call offers one of its own
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class SharedOptions(TypedDict, total=False):
    """The options that AgentFunction and ``@agent`` share, but for *returns* and *output_type*."""

    uses: Iterable[Function] | None
    tools: Iterable[Function] | None
    model_tools: Mapping[Provider | str, Sequence[Function]] | None
    max_steps: int | None
    max_turns: int | None
    instructions: SystemPrompt | None
    description: str | None
    parallel_tools: bool | None
    compaction: Compaction | Literal["auto"] | None
    settings: ModelSettings | None
    budget: Budget | None
    tags: Iterable[str] | None
    repeatable: bool | None
    remote: bool | str
    uses_recursion: bool
    max_depth: int
    ask: Ask
    max_result_chars: int | None


class AgentFunctionOptions(SharedOptions, total=False):
    """The options of AgentFunction, but for *returns* and *output_type*."""

    args: Sequence[FunctionArg] | None
    system_prompt: SystemPrompt | None
    user_prompt_template: str | FromFile | None
    default_model: Model | Provider | str | None
    model: Model | Provider | str | None


class AgentFunction(Function[P, R_co]):  # noqa: PLR0904 - most are the parts of its definition
    """Call tree: a prompt with a signature; calling it has a model carry out the prompt.

    It is not one of its calls: each is an AgentNode. Nor does it queue turns: that is ``Agent``.

    The model may call the functions in *uses*, and those that *model_tools* has for its provider.
    ``{name}`` of an argument is replaced in both prompts; other braces stay. A subclass may define
    attributes or properties of these names instead of passing arguments.

    Args:
        name: the name of the agent; for a subclass, by default, the name of the class.
        desc: what it does; a model reads this to decide whether to call it.
        args: its arguments.
        system_prompt: the role and the rules of the model; may be a FromFile, or a function of the
            RunContext, perhaps async, that returns it. A resumed call uses the recorded one.
        user_prompt_template: the first message to the model; may be a FromFile.
        uses: the functions that it may call.
        model_tools: further functions, by Provider or by the name of a model.
        default_model: a Provider, a name or a Model. Without one, that of the Client in whose turn
            it is called, the runtime's default, or else the variable ``TREEFOLD_MODEL``.
        returns: the type of the result; without one, the result is the last text of the model.
        max_steps: how many requests one call may make.
        parallel_tools: run the calls of one response in parallel.
        compaction: make room when the context window is nearly full: ``"auto"``, or a Compaction.
        settings: settings of the model.
        budget: what each call may spend, including all calls below it.
        tags: for hooks.
        remote: whether any worker of a shared store may run its calls, or the name of a queue.
        repeatable: a hint for others, such as MCP clients. After a crash, an agent continues after
            its last response in either case.
        uses_recursion: whether it may call itself.
        max_depth: how many calls of it may be nested.
        ask: whether a person approves each call that a model asks for; see ``@tool``.

    The names of other libraries are accepted, too: *description* for desc, *instructions* for
    system_prompt, *tools* for uses, *model* for default_model, *output_type* for returns, and
    *max_turns* for max_steps.

    Example:
        >>> from treefold import AgentFunction, FunctionArg, Runtime
        >>> from treefold.testing import ScriptedModel
        >>> translate = AgentFunction(
        ...     name="translate",
        ...     desc="Translate a text into English.",
        ...     args=[FunctionArg("text", str, "What to translate")],
        ...     system_prompt="You are a translator.",
        ...     user_prompt_template="Translate: {text}",
        ... )
        >>> with Runtime([translate], models=ScriptedModel("Good morning!")) as runtime:
        ...     runtime.invoke(translate, {"text": "Guten Morgen!"}).result()
        'Good morning!'
    """

    is_agent = True

    @overload
    def __init__(
        self: "AgentFunction[..., str]",
        name: str | None = None,
        desc: str | None = None,
        *,
        returns: None = None,
        **options: Unpack[AgentFunctionOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "AgentFunction[..., T]",
        name: str | None = None,
        desc: str | None = None,
        *,
        returns: type[T],
        **options: Unpack[AgentFunctionOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: "AgentFunction[..., T]",
        name: str | None = None,
        desc: str | None = None,
        *,
        output_type: type[T],
        **options: Unpack[AgentFunctionOptions],
    ) -> None: ...

    # A union, for example, is no ``type`` for type checkers.
    @overload
    def __init__(
        self: "AgentFunction[..., Any]",
        name: str | None = None,
        desc: str | None = None,
        *,
        returns: Any = None,
        output_type: Any = None,
        **options: Unpack[AgentFunctionOptions],
    ) -> None: ...

    def __init__(  # noqa: PLR0913 - a definition has many parts, each by its name
        self,
        name: str | None = None,
        desc: str | None = None,
        *,
        args: Sequence[FunctionArg] | None = None,
        system_prompt: SystemPrompt | None = None,
        user_prompt_template: str | FromFile | None = None,
        uses: Iterable[Function] | None = None,
        model_tools: Mapping[Provider | str, Sequence[Function]] | None = None,
        default_model: Model | Provider | str | None = None,
        returns: Any = None,
        max_steps: int | None = None,
        parallel_tools: bool | None = None,
        compaction: Compaction | Literal["auto"] | None = None,
        settings: ModelSettings | None = None,
        budget: Budget | None = None,
        tags: Iterable[str] | None = None,
        repeatable: bool | None = None,
        remote: bool | str = False,
        uses_recursion: bool = False,
        max_depth: int = 10,
        ask: Ask = False,
        max_result_chars: int | None = None,
        description: str | None = None,
        instructions: SystemPrompt | None = None,
        tools: Iterable[Function] | None = None,
        model: Model | Provider | str | None = None,
        output_type: Any = None,
        max_turns: int | None = None,
    ) -> None:
        owner = name or type(self).__name__
        uses = either(owner, "uses", uses, "tools", tools)
        given: dict[str, Any] = {
            "name": name,
            "description": either(owner, "desc", desc, "description", description),
            "args": args,
            "system_prompt": either(
                owner, "system_prompt", system_prompt, "instructions", instructions
            ),
            "user_prompt_template": user_prompt_template,
            "uses": None if uses is None else checked_functions(uses, f"the 'uses' of {name}"),
            "model_tools": model_tools,
            "default_model": either(owner, "default_model", default_model, "model", model),
            "returns": either(owner, "returns", returns, "output_type", output_type),
            "max_steps": either(owner, "max_steps", max_steps, "max_turns", max_turns),
            "parallel_tools": parallel_tools,
            "compaction": compaction_of(owner, compaction),
            "settings": settings,
        }
        self._given = {key: value for key, value in given.items() if value is not None}
        for key in self._given:
            if getattr(type(self), key) is not getattr(AgentFunction, key):
                raise DefinitionError(
                    f"the class {type(self).__name__} defines {key} itself; leave out {key}=..."
                )
        super().__init__(
            self.name,
            self.description,
            tags=tags,
            repeatable=repeatable,
            remote=remote,
            uses_recursion=uses_recursion,
            max_depth=max_depth,
            budget=budget,
            ask=ask,
            max_result_chars=max_result_chars,
        )
        self._check()

    def _check(self) -> None:
        """Check the parts of the definition that do not depend on a runtime."""
        name = self.name
        for what, (kind, wanted) in _KINDS.items():
            if not isinstance(value := getattr(self, what), kind):
                raise InvalidValueError(f"the {what} of agent {name} is {wanted}, not {value!r}")
        if self.max_steps < 1:
            raise InvalidValueError(f"max_steps={self.max_steps!r} of {name}: give 1 or more")
        for arg in self.args:
            if not isinstance(arg, FunctionArg):
                raise DefinitionError(
                    f"the args of {name} are FunctionArgs, which {arg!r} is not; use @agent to take"
                    " them from a signature"
                )
        for key, functions in self.model_tools.items():
            if not isinstance(key, str):
                raise DefinitionError(
                    f"the model_tools of {name} go by Provider or name, not {key!r}"
                )
            checked_functions(functions, f"the model_tools of {name}")
        # Creating it raises DefinitionError if *returns* is not a type.
        _ = self.return_function

    # The definition

    @property
    def name(self) -> str:
        return self._given.get("name") or _WORDS.sub("_", type(self).__name__).lower()

    @property
    def description(self) -> str:
        own = "" if type(self) is AgentFunction else inspect.getdoc(type(self)) or ""
        return self._given.get("description", own)

    @property
    def args(self) -> Sequence[FunctionArg]:
        """The arguments, listed one by one."""
        return self._given.get("args", ())

    @property
    def system_prompt(self) -> SystemPrompt:
        """The role and the rules of the model."""
        return self._given.get("system_prompt", "")

    @property
    def user_prompt_template(self) -> str | FromFile:
        """The first message to the model, with placeholders for arguments."""
        return self._given.get("user_prompt_template", "")

    @property
    def uses(self) -> Sequence[Function]:
        return self._given.get("uses", ())

    @property
    def model_tools(self) -> Mapping[Provider | str, Sequence[Function]]:
        """Further functions, by Provider or by the name of a model."""
        return self._given.get("model_tools", {})

    @property
    def default_model(self) -> Model | Provider | str | None:
        """The model of calls that name none."""
        return self._given.get("default_model")

    @property
    def returns(self) -> Any:
        """The type of the result; None for text."""
        return self._given.get("returns")

    @property
    def max_steps(self) -> int:
        """How many requests one call may make."""
        return self._given.get("max_steps", 100)

    @property
    def parallel_tools(self) -> bool:
        """Whether the calls of one response run in parallel."""
        return self._given.get("parallel_tools", False)

    @property
    def compaction(self) -> Compaction | None:
        """How it makes room when the context window of its model is nearly full."""
        return self._given.get("compaction")

    @property
    def settings(self) -> ModelSettings:
        """Settings of the model."""
        return self._given.get("settings") or ModelSettings()

    @cached_property
    def parameters(self) -> Parameters:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Parameters(self.name, [arg.as_parameter() for arg in self.args])

    @property
    def output_type(self) -> Any:
        return str if self.returns is None else self.returns

    @cached_property
    def return_function(self) -> ReturnResult | None:
        """The function that the model calls to return its result, if that has a type."""
        return None if self.returns is None else ReturnResult(self.returns, or_answer=True)

    @property
    def takes_messages(self) -> bool:
        return True

    @property
    def own_functions(self) -> Sequence[Function]:
        returning = () if self.return_function is None else (self.return_function,)
        return (*returning, _READ_RESULT, SUMMARIZE)

    @property
    def may_call(self) -> Sequence[Function]:
        more = [function for tools in self.model_tools.values() for function in tools]
        return (*super().may_call, *more)

    def functions_for(self, model: Model, model_ref: Any = None) -> list[Function]:
        """Return the functions that *model*, requested as *model_ref*, may call, in order."""
        functions, tools = [*super().may_call], self.model_tools
        if tools:
            by_name = {str(key): more for key, more in tools.items()}
            for key in dict.fromkeys([str(model.provider), model.name, str(model_ref)]):
                functions += by_name.get(key, ())
        return list(dict.fromkeys(functions))

    def faults(self, models: ModelFinder) -> list[str]:
        faults = [
            fault
            for what, prompt in self._prompts().items()
            for fault in self._placeholder_faults(what, prompt)
        ]
        if self.user_prompt_template == "" and not self._builds_prompt:
            faults.append("it has no user_prompt_template, and the model would be told nothing")
        if self.compaction is not None and self.compaction.model is not None:
            try:
                candidates(models.find(self.compaction.model), models)
            except (DefinitionError, InvalidValueError) as error:
                faults.append(f"its compaction: {error}")
        return faults + self.model_faults(models, self.default_model)

    def _placeholder_faults(self, what: str, prompt: str) -> list[str]:
        names = [parameter.name for parameter in self.parameters.items]
        return [
            f"its {what} has {{{name}}}, which is none of its arguments"
            f" ({', '.join(names) or 'none'}): add the argument, or write '{{ {name} }}'"
            for name in unknown_placeholders(prompt, names)
        ]

    def model_faults(
        self, models: ModelFinder, model_ref: Model | Provider | str | None
    ) -> list[str]:
        """Return why the model that *model_ref* refers to cannot be used; empty if it can."""
        if models.is_unchosen(model_ref):
            # Each call may name a model, or be made in a turn of a chat, which has one. Those that
            # use the model of the environment, if there is one, check it when they begin.
            return self._schema_faults()
        try:
            model = models.find(model_ref)
            for one in candidates(model, models):
                one.check(self._task_functions(one, model_ref))
        except (DefinitionError, InvalidValueError) as error:
            return [str(error)]
        return []

    def _schema_faults(self) -> list[str]:
        """Return why no model at all could call the functions."""
        try:
            for function in self.may_call:
                _ = function.input_schema
        except DefinitionError as error:
            return [str(error)]
        return []

    def definition(self) -> Mapping[str, Any]:
        tools = {function.name: function.interface() for function in self.may_call}
        returned, model = self.return_function, self.default_model
        return {
            "prompt": self.prompt_definition(),
            "tools": tools,
            "settings": {
                "model": None if model is None else str(getattr(model, "name", model)),
                "settings": self.settings,
                "max_steps": self.max_steps,
                "parallel_tools": self.parallel_tools,
                **({} if self.compaction is None else {"compaction": self.compaction}),
                "returns": None if returned is None else without_defaults(returned.type.schema),
            },
        }

    def prompt_definition(self) -> list[Any]:
        """Return what the prompts of a call are made of: texts, files, parameters and methods."""
        kind = type(self)
        return [
            self.system_prompt,
            self.user_prompt_template,
            without_defaults(self.input_schema),
            kind.system,
            kind.prompt,
            kind.run_call,
        ]

    _builds_prompt = False  # whether the prompt comes from elsewhere than the template

    def _prompts(self) -> dict[str, str]:
        prompts = {"system prompt": self.system_prompt, "prompt": self.user_prompt_template}
        return {what: prompt for what, prompt in prompts.items() if isinstance(prompt, str)}

    # Calling it

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Node[R_co]:
        """Start a call, as ``run`` does."""
        return self.run(*args, **kwargs)

    async def prompt(self, ctx: RunContext, args: Mapping[str, Any]) -> str:
        """Return the first message to the model."""
        return await self._filled(self.user_prompt_template, args, "user_prompt_template")

    async def system(self, ctx: RunContext, args: Mapping[str, Any]) -> str:
        """Return the system prompt."""
        given = self.system_prompt
        if isinstance(given, str | FromFile):
            return await self._filled(given, args, "system_prompt")
        return await system_text(given, ctx, self.name)

    async def _filled(self, template: str | FromFile, args: Mapping[str, Any], what: str) -> str:
        if isinstance(template, FromFile):
            template = await read_file(template, f"{self.name}: {what}")
            if faults := self._placeholder_faults(what, template):
                raise DefinitionError(f"{self.name}: {'; '.join(faults)}")
        defaults = {p.name: p.default for p in self.parameters.items if not p.required}
        return filled(template, defaults | dict(args))

    async def run_call(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        if not ctx.node.function.is_agent:
            raise UsageError(f"{self.name} is an agent: call it by ctx.invoke, not run_call()")
        conversation: AgentConversation = ctx.conversation
        requested = conversation.model_ref
        model_ref = self.default_model if requested is None else requested
        find = partial(conversation.find_model, model_ref)
        found = await found_model(ctx, find, model_ref, self.name, '@agent(model="{}")')
        models = candidates(found, conversation.models)
        model = preferred(models, conversation.model)
        functions = self._task_functions(model, model_ref)
        if not model.calls_functions:
            # Raises DefinitionError if it would have to call some.
            model.check(functions)
        prior = conversation.prior
        system, prompt = prior.system, prior.prompt
        if system is None:
            system = await self.system(ctx, args)
        if prompt is None and not prior.is_begun:
            prompt = await self.prompt(ctx, args)
        task = Task(
            model=model,
            system=system,
            prompt=prompt or "",
            functions=functions,
            settings=self._task_settings(model, model_ref),
            result=None if self.return_function is None else self.return_function.type,
            max_steps=self.max_steps,
            parallel_tools=self.parallel_tools,
            compaction=self.compaction,
            summarize=SUMMARIZE,
            models=models,
            retry_primary=retry_primary(found),
            for_model=lambda one: (
                self._task_functions(one, model_ref),
                self._task_settings(one, model_ref),
            ),
        )
        return await carry_out(ctx, conversation, task)

    def _task_functions(self, model: Model, model_ref: Any) -> list[Function]:
        functions = self.functions_for(model, model_ref)
        if self.return_function is None or self._answers_in_schema(model, model_ref):
            return functions
        return [*functions, self.return_function]

    def _task_settings(self, model: Model, model_ref: Any) -> ModelSettings:
        if self.return_function is None or not self._answers_in_schema(model, model_ref):
            return self.settings
        schema = self.return_function.type.schema
        return replace(self.settings, response_schema=schema)

    def _answers_in_schema(self, model: Model, model_ref: Any) -> bool:
        """Whether the provider accepts the schema of the result instead of a function."""
        return model.provider is Provider.Gemini and not self.functions_for(model, model_ref)
