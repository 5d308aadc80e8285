"""System prompts that a function of the context returns."""

from typing import Any

import pytest

from treefold import (
    AgentFunction,
    AgentOptions,
    Client,
    Ensemble,
    RunContext,
    Runtime,
    ThinkMore,
    agent,
)
from treefold.errors import DefinitionError, InvalidValueError
from treefold.runtime.durable.function_version import version_of
from treefold.testing import ScriptedModel


def rules(ctx: RunContext) -> str:
    return f"You are {ctx.deps} and speak about {ctx.node.inputs['topic']}. {{topic}} stays."


async def async_rules(ctx: RunContext) -> str:
    return rules(ctx)


TOLD = "You are Ada and speak about bees. {topic} stays."


def systems(model: ScriptedModel) -> list[str]:
    return [request.system for request in model.requests]


@pytest.mark.parametrize("system", [rules, async_rules, lambda ctx: async_rules(ctx)])
def test_the_decorator_takes_a_function(system: Any):
    @agent(system=system)
    def talk(topic: str) -> str:
        return topic

    model = ScriptedModel("Done.")
    with Runtime([talk], models=model, deps="Ada") as runtime:
        node = runtime.invoke(talk, {"topic": "bees"})
        assert node.result() == "Done."
        assert runtime.get_view(node.id).system == TOLD
    assert systems(model) == [TOLD]


def test_a_subclass_may_define_it_as_a_method():
    class Talk(AgentFunction):
        """Talk."""

        user_prompt_template = "Talk."  # pyright: ignore

        async def system_prompt(self, ctx: RunContext) -> str:  # pyright: ignore
            return f"You are {ctx.deps}."

    model = ScriptedModel("Done.")
    with Runtime(models=model, deps="Ada") as runtime:
        assert runtime.invoke(Talk()).result() == "Done."
    assert systems(model) == ["You are Ada."]


def test_agents_that_are_made_of_others_have_it_too():
    @agent(system=rules)
    def talk(topic: str) -> str:
        return topic

    model = ScriptedModel(lambda request: "Done.")
    with Runtime(models={"default": model, "local": model}, deps="Ada") as runtime:
        runtime.invoke(ThinkMore(talk), {"topic": "bees"}).result()
        runtime.invoke(Ensemble(talk, {"local": 2}), {"topic": "bees"}).result()
    assert set(systems(model)) == {TOLD}


def test_what_is_no_text_is_refused():
    three: Any = lambda ctx: 3  # noqa: E731 - it is no text

    @agent(system=three)
    def talk() -> str:
        return "Talk."

    with Runtime(models=ScriptedModel("Done.")) as runtime:
        with pytest.raises(DefinitionError, match="the system prompt of talk must be text"):
            runtime.invoke(talk).result()
        with pytest.raises(InvalidValueError, match="text, a FromFile or a function"):
            AgentFunction("talk", "Talk.", system_prompt=3)  # pyright: ignore
        with pytest.raises(InvalidValueError, match="or a function that returns it"):
            AgentOptions(3)  # pyright: ignore


def test_its_code_counts_in_the_version_of_the_agent():
    def made(system: Any) -> str:
        return version_of(AgentFunction("a", "", user_prompt_template="x", system_prompt=system))

    assert made(lambda ctx: "one") == made(lambda ctx: "one")
    assert made(rules) != made(async_rules)


async def test_a_chat_asks_for_it_in_each_turn():
    asked: list[str] = []

    async def count(ctx: RunContext) -> str:
        asked.append(ctx.node.inputs["prompt"])
        return f"You are {ctx.deps}."

    model = ScriptedModel("One.", "Two.")
    async with Client(AgentOptions(count, model, deps="Ada")) as client:
        for prompt in ("first", "second"):
            await client.query(prompt)
            async for _ in client.receive_messages():
                pass
    assert asked == ["first", "second"]
    assert systems(model) == ["You are Ada.", "You are Ada."]
