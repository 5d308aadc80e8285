"""The options of a chat."""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import InitVar, dataclass, field
from typing import Any, Final, Literal, cast

from treefold.agents.prompts import SystemFunction
from treefold.core.decisions import Hooks, Rules
from treefold.core.errors import DefinitionError, InvalidValueError
from treefold.core.function import Function, ModelFinder, checked_functions
from treefold.core.model import Caching, Model, ModelSettings
from treefold.core.other_names import either
from treefold.models.openai.model import OpenAIModel
from treefold.models.retry import Retry, Timers
from treefold.models.wire_model import WireModel

_NO_KEY: Final = "not-needed"
_NOT_GIVEN: Final[Any] = ...
# Shorter delays, in seconds, than those of agents: a person is waiting.
_RETRY: Final = Retry((1.0, 2.0, 4.0, 8.0), if_refused=False)
# The default. It is not sent to models that do not accept a temperature; any other value is.
_TEMPERATURE: Final = 0.7


@dataclass(slots=True)
class AgentOptions:
    """Chat: the options of ``query`` and ``Client``: the model, its tools and the limits.

    They are no agent and no options of one: an AgentFunction takes its own arguments.

    Attributes:
        system_prompt: the role and the rules of the model, or a function of the RunContext, perhaps
            async, that returns them in each turn; *instructions* is another name for it.
        model: with a *base_url*, the name of the model on that server; otherwise a name such as
            ``"anthropic:claude-opus-5-5"`` or ``"local"``, a Provider, or a Model. None is for the
            default of the runtime, or else the variable ``TREEFOLD_MODEL``.
        base_url: an OpenAI-compatible server: its address, or one of ``llamacpp``, ``lmstudio``,
            ``ollama``, ``vllm``.
        tools: the functions that the model may call; agents are functions, too.
        auto_execute_tools: make the calls that the model asks for, and send it the results.
        max_tool_iterations: the number of responses with calls after which a turn ends.
        max_turns: how many prompts one ``receive_messages()`` reads the answers of.
        max_tokens: the length limit of a response; None leaves it to the provider.
        temperature: the sampling temperature; None leaves it to the provider.
        timeout: seconds to wait for the first byte of a response, and between its pieces.
        api_key: the key, where one is needed; ``"not-needed"`` means that of the environment.
        hooks: functions that decide about prompts, calls, their results and when to stop, by
            HOOK_PRE_TOOL_USE and the like; the names of claude-agent-sdk ("PreToolUse") work, too.
        allowed_tools: the only functions that may be called, at any depth.
        disallowed_tools: functions that may not be called, at any depth.
        deps: what calls have as ``ctx.deps``, as for a Runtime; each turn is a run of its own.
        allow_lenient_tool_json: complete arguments that were cut off, where that is safe.
        tool_use_deltas: stream calls while the model is still writing them, as ToolUseDelta.
        retry: when a failed request is retried; by default after 1, 2, 4 and 8 seconds, and not at
            all if the connection was refused.
        on_blocked: what happens when a hook, a rule or a person forbids a call: ``"raise"`` a
            ``RuntimeError("Tool use blocked: ...")``, or ``"tell"`` the model, with a ToolUseError.
        result_message: end each iteration with a ResultMessage: cost, usage, duration, session.

    Example:
        >>> from treefold import AgentOptions
        >>> options = AgentOptions("You are brief.", "qwen3", "ollama", temperature=0)
        >>> options.max_tokens, options.auto_execute_tools
        (4096, False)
    """

    system_prompt: str | SystemFunction = _NOT_GIVEN
    model: Any = None
    base_url: str | None = None
    tools: Sequence[Function] = field(default_factory=list[Function])
    auto_execute_tools: bool = False
    max_tool_iterations: int = 5
    max_turns: int = 1
    max_tokens: int | None = 4096
    temperature: float | None = _TEMPERATURE
    timeout: float | None = 60.0
    api_key: str | None = field(default=_NO_KEY, repr=False)
    hooks: Hooks | None = None
    allowed_tools: Iterable[str | Function] | None = None
    disallowed_tools: Iterable[str | Function] = ()
    allow_lenient_tool_json: bool = False
    tool_use_deltas: bool = False
    retry: Retry | None = None
    on_blocked: Literal["raise", "tell"] = "raise"
    result_message: bool = False
    deps: object = field(default=None, kw_only=True)
    instructions: InitVar[str | SystemFunction | None] = field(default=None, kw_only=True)

    def __post_init__(self, instructions: str | SystemFunction | None) -> None:
        own: Any = None if self.system_prompt is _NOT_GIVEN else self.system_prompt
        given: Any = either("AgentOptions", "system_prompt", own, "instructions", instructions)
        if given is None and self.system_prompt is _NOT_GIVEN:
            raise DefinitionError("AgentOptions needs a system_prompt; it may be empty")
        if not isinstance(given, str) and not callable(given):
            raise InvalidValueError(
                f"the system_prompt is text, or a function that returns it, not {given!r}"
            )
        self.system_prompt = cast("str | SystemFunction", given)
        if self.model == "" or not isinstance(self.model, str | Model | None):
            raise InvalidValueError(
                f"model={self.model!r}: give the name of a model, such as 'qwen3' with a base_url,"
                " 'anthropic:claude-opus-5-5', 'local', or None for that of the runtime"
            )
        if self.base_url is not None:
            self._check_address(self.base_url)
        if not isinstance(self.api_key, str | None):
            # The value may contain a key, so the message has its type only.
            raise InvalidValueError(f"the api_key is text, not {type(self.api_key).__name__}")
        if not isinstance(self.retry, Retry | None):
            raise InvalidValueError(f"retry={self.retry!r}: give a Retry([...]), or None")
        if self.on_blocked not in {"raise", "tell"}:
            raise InvalidValueError(
                f"on_blocked must be 'raise' or 'tell', got {self.on_blocked!r}"
            )
        self._check_numbers()

    def _check_address(self, base_url: str) -> None:
        if not isinstance(base_url, str) or not isinstance(self.model, str):
            raise InvalidValueError(
                f"base_url={base_url!r} goes with the name of a model, not model={self.model!r}"
            )
        if not base_url.strip():
            raise InvalidValueError("the base_url is empty: give an address, or None")
        OpenAIModel(self.model, base_url=base_url)  # raises InvalidValueError if it is no address

    def _check_numbers(self) -> None:
        for name in ("max_tool_iterations", "max_turns"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InvalidValueError(f"{name}={value!r}: give 1 or more")
        for name in ("timeout", "temperature", "max_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int | float | None):
                raise InvalidValueError(f"{name}={value!r}: give a number, or None")
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidValueError(f"timeout={self.timeout!r}: give seconds, or None")
        ModelSettings(max_tokens=self.max_tokens)  # raises InvalidValueError if it is out of range

    def functions(self) -> tuple[Function, ...]:
        """Return the tools.

        Raises:
            InvalidValueError: two have the same name.
        """
        found = checked_functions(self.tools, "the 'tools' of AgentOptions")
        names: set[str] = set()
        for function in found:
            if function.name in names:
                raise InvalidValueError(f"Duplicate tool name: {function.name}")
            names.add(function.name)
        return found

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self.model.name if isinstance(self.model, Model) else str(self.model or "default")

    def rules(self) -> Rules:
        """Return the permissions and hooks of this chat."""
        return Rules.of(self.allowed_tools, self.disallowed_tools, self.hooks)

    def settings(self, model: Model) -> ModelSettings:
        """Return the settings of requests to *model*."""
        temperature = self.temperature
        if temperature == _TEMPERATURE and isinstance(model, WireModel):
            temperature = temperature if model.profile.sampling else None
        return ModelSettings(
            max_tokens=self.max_tokens,
            temperature=temperature,
            caching=Caching.MINUTES,  # each turn repeats the conversation from its beginning
            allow_lenient_tool_json=self.allow_lenient_tool_json,
        )

    def find_model(self, models: ModelFinder) -> Model:
        """Return the model to talk to, looked up in *models* if there is no ``base_url``.

        Raises:
            InvalidValueError: there is no model of that name.
        """
        timers, retry = Timers(self.timeout, self.timeout), self.retry or _RETRY
        key = None if self.api_key == _NO_KEY else self.api_key
        if self.base_url is not None:
            return OpenAIModel(
                self.model, base_url=self.base_url, api_key=key, timers=timers, retry=retry
            )
        model: Model = models.find(self.model)
        if model is self.model or not isinstance(model, WireModel):
            return model
        return _configured(copy(model), timers, retry, key)


def _configured(model: WireModel, timers: Timers, retry: Retry, key: str | None) -> WireModel:
    """Apply options to *model*, a copy that belongs to this chat, and return it."""
    model.timers = timers
    model.retry = retry
    if key is not None:
        model.use_key(key)
    return model
