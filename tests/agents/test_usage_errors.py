"""What is said to a program that gives the wrong things."""

import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from agent_scripts import run_agent
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    AgentOptions,
    Budget,
    Client,
    CodeFunction,
    Ensemble,
    HookDecision,
    Limits,
    ModelProviderException,
    Provider,
    Runtime,
    ToolUse,
    TreefoldError,
    agent as decorated_agent,
)
from treefold.errors import DefinitionError, InvalidValueError, UsageError
from treefold.testing import ScriptedModel

greet = AgentFunction("greet", "", user_prompt_template="Say hello.")
code = CodeFunction(name="code", callable=lambda ctx: 1)
anything: Any = lambda value: value  # noqa: E731 - so that the type checker lets it pass


def agent(**options: Any) -> AgentFunction:
    return AgentFunction("boss", **options)


WRONG: dict[str, Callable[[], object]] = {
    "needs a list of Functions, not <AgentFunction greet>": lambda: Runtime(anything(greet)),
    "limits are Limits": lambda: Runtime(limits=anything(5)),
    "a budget is a Budget": lambda: Runtime(budget=anything(5)),
    "hooks go by name": lambda: Runtime(hooks=anything([print])),
    "each hook name has a list": lambda: Runtime(hooks=anything({HOOK_PRE_TOOL_USE: None})),
    "tools are listed by name": lambda: Runtime(allowed_tools=anything(5)),
    "not None": lambda: Runtime(disallowed_tools=anything(None)),
    "per_provider goes by Provider:": lambda: Limits(per_provider=anything([1])),
    "which ['nope'] are not": lambda: Limits(per_provider=anything({"nope": 1})),
    "usd='much' is no amount": lambda: Budget(usd=anything("much")),
    "usd='nan' is none": lambda: Budget(usd=anything("nan")),
    "tokens='100' is none": lambda: Budget(tokens=anything("100")),
    "seconds='5' is none": lambda: Budget(seconds=anything("5")),
    "calls=1.5 is none": lambda: Budget(calls=anything(1.5)),
    "instances go by model": lambda: Ensemble(greet, anything(["a", "b"])),
    "a name, not 5": lambda: Ensemble(greet, anything({5: 2})),
    "a name, not 6": lambda: Ensemble(greet, {"a": 2}, reconcile_by=anything(6)),
    "the name of agent 5 is text": lambda: AgentFunction(anything(5)),
    "the description of agent boss is text": lambda: agent(desc=5),
    "the args of agent boss is a list": lambda: agent(args=5),
    "the system_prompt of agent boss is text": lambda: agent(system_prompt=5),
    "the user_prompt_template of agent boss is text": lambda: agent(user_prompt_template=5),
    "the 'uses' of boss needs a list": lambda: agent(uses=code),
    "the model_tools of agent boss is lists": lambda: agent(model_tools=[code]),
    "the model_tools of boss needs a list": lambda: agent(model_tools={Provider.OpenAI: code}),
    "the default_model of agent boss is": lambda: agent(default_model=5),
    "max_depth=0 of boss": lambda: agent(max_depth=0),
    "the 'uses' of f needs a Function": lambda: CodeFunction(
        name="f", callable=lambda ctx: 1, uses=anything([5])
    ),
    "arguments go by name": lambda: HookDecision(modified_input=anything("ls")),
    "question are text: 5": lambda: HookDecision(ask=anything(5)),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_used_is_refused_at_once_with_a_sentence(message: str):
    with pytest.raises(TreefoldError) as caught:
        WRONG[message]()
    assert message in str(caught.value)


class Prompt(str):
    __slots__ = ()


def test_a_prompt_that_is_annotated_with_the_result_of_the_model_is_refused():
    with pytest.raises(DefinitionError, match=r"write '-> str', and @agent\(returns=int\)"):

        @decorated_agent
        def count(things: str) -> int:
            return anything(f"Count {things}.")

    for suitable in (str, object, Any, Awaitable, Sequence, Prompt, "Later", None):

        def hello() -> Any:
            return "Hello?"

        hello.__annotations__["return"] = suitable
        assert decorated_agent(hello).name == "hello"

    @decorated_agent(returns=int)
    def counted(things: str) -> int:  # not what is asked for, and harmless
        return anything(f"Count {things}.")

    assert counted.name == "counted"


async def test_a_decision_hook_with_the_arguments_of_another_library_is_refused_at_once():
    async def hook(input_data: Any, tool_use_id: Any, context: Any) -> None: ...

    with pytest.raises(InvalidValueError, match=r"takes one argument, the event, .*tool_use_id"):
        Runtime(hooks=anything({"PreToolUse": [hook]}))


async def test_a_decision_hook_that_is_not_async_is_named():
    def hook(event: Any) -> None: ...

    hooks = anything({HOOK_PRE_TOOL_USE: [hook]})
    boss = agent(user_prompt_template="Work.", uses=[code])
    node = await run_agent(boss, models=ScriptedModel(ToolUse("1", "code")), hooks=hooks)
    assert "a decision hook is an async function" in str(node.exception)


CLAUDE = "anthropic:claude-opus-5-5"
NO_KEY = f"{CLAUDE} needs a key: set ANTHROPIC_API_KEY, or give api_key="
NO_PACKAGE = (
    f"{CLAUDE} needs a package that is not installed: pip install 'anthropic[aiohttp]>=2' (it is in"
    " 'treefold[anthropic]')"
)


@pytest.mark.parametrize("face", ["agent", "chat"])
@pytest.mark.parametrize("said", [NO_KEY, NO_PACKAGE], ids=["key", "package"])
async def test_what_a_model_lacks_is_said_once_and_with_its_remedy(
    face: str, said: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    if said == NO_PACKAGE:
        monkeypatch.setitem(sys.modules, "anthropic", None)

    async def ask() -> None:
        if face == "agent":
            await AgentFunction("greet", user_prompt_template="Hi.", default_model=CLAUDE).run()
        async with Client(AgentOptions("You help.", CLAUDE)) as client:
            await client.query("Hi.")

    with pytest.raises(ModelProviderException) as caught:
        await ask()
    assert caught.value.message == said
    assert (caught.value.provider, caught.value.model) == ("AnthropicModel", CLAUDE)
    assert isinstance(caught.value.inner, UsageError)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback (most recent call last)") == 1
    assert "contextlib" not in shown
    assert "UsageError" not in shown


async def test_what_a_provider_cannot_do_is_still_shown_with_its_cause():
    class Broken(ScriptedModel):
        def open(self, *args: Any, **options: Any) -> Any:
            raise LookupError("a bug")

    failure = (await run_agent(greet, models=Broken())).exception
    assert isinstance(failure, ModelProviderException)
    assert failure.message.endswith("failed: LookupError: a bug")
    assert isinstance(failure.__cause__, LookupError)
