"""Options by the names that they have in other libraries, and what is easily taken for another."""

from typing import Any

import pytest

from treefold import (
    Agent,
    AgentFunction,
    AgentOptions,
    CodeFunction,
    RunContext,
    Runtime,
    agent,
    registries,
)
from treefold.errors import DefinitionError
from treefold.models import find_model
from treefold.testing import ScriptedModel


def look(ctx: RunContext) -> str:
    """Look around."""
    return "nothing"


LOOK = CodeFunction(callable=look)
PAIRS: dict[str, tuple[str, Any]] = {
    "tools": ("uses", [LOOK]),
    "instructions": ("system_prompt", "You are brief."),
    "output_type": ("returns", int),
    "max_turns": ("max_steps", 3),
    "description": ("desc", "It counts."),
    "model": ("default_model", "local"),
}


def test_an_agent_is_the_same_by_either_name():
    here: Any = AgentFunction
    options = {"name": "count", "user_prompt_template": "Count."}
    by_theirs = here(**options, **{name: value for name, (_, value) in PAIRS.items()})
    by_ours = here(**options, **dict(PAIRS.values()))
    for one in (by_theirs, by_ours):
        assert [*one.uses] == [LOOK]
        assert (one.system_prompt, one.returns, one.max_steps) == ("You are brief.", int, 3)
        assert (one.description, one.default_model) == ("It counts.", "local")


@pytest.mark.parametrize("name", PAIRS)
def test_both_names_at_once_are_refused(name: str):
    ours, value = PAIRS[name]
    here: Any = AgentFunction
    with pytest.raises(DefinitionError, match=f"count got both {ours}= and {name}=, which are two"):
        here("count", **{ours: value, name: value})


def test_the_decorator_takes_them_too():
    model = ScriptedModel("hm", "Seven.")

    @agent(instructions="You are brief.", tools=[LOOK], max_turns=2, description="It counts.")
    def count(things: str) -> str:
        """Say how many."""
        return f"Count {things}."

    def counts() -> str:
        return "Count."

    assert (count.description, count.max_steps, [*count.uses]) == ("It counts.", 2, [LOOK])
    with Runtime([count], models=model) as runtime:
        assert runtime.invoke(count, {"things": "days"}).result() == "hm"
    assert model.requests[0].system == "You are brief."
    here: Any = agent
    for options, fault in (
        ({"system": "x", "instructions": "y"}, "@agent got both system= and instructions="),
        ({"uses": [LOOK], "tools": [LOOK]}, "counts got both uses= and tools="),
        ({"instruction": "x"}, "@agent has no option instruction; it has system, model, name"),
        ({"system_prompt": "x"}, "@agent has no option system_prompt; did you mean 'system'?"),
    ):
        with pytest.raises(DefinitionError, match=fault):
            here(**options)(counts)


def test_a_chat_takes_instructions():
    assert AgentOptions(instructions="You are brief.").system_prompt == "You are brief."
    assert AgentOptions("", model="local").system_prompt == ""
    with pytest.raises(DefinitionError, match="both system_prompt= and instructions="):
        AgentOptions("You are brief.", instructions="You are not.")
    with pytest.raises(TypeError, match="AgentOptions needs a system_prompt"):
        AgentOptions(model="local")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("google:gemini-2.5-pro", "gemini:gemini-2.5-pro"),
        ("Google", "gemini:gemini-4-argon"),
        ("openai-chat:gpt-4o", "openai:gpt-4o"),
        ("openai-chat:qwen3@ollama", "openai:qwen3@http://localhost:11434/v1"),
    ],
)
def test_providers_have_the_names_of_other_libraries(name: str, found: str):
    assert find_model(name).name == found


# Agent and agent


def test_a_queue_of_turns_that_is_used_like_an_agent_with_a_model_says_so():
    here: Any = Agent
    queue = "Agent has no instructions, model: it is a queue of turns.*made by @agent"
    with pytest.raises(DefinitionError, match=queue):
        here("helper", instructions="You help.", model="local", tools=[])
    with pytest.raises(DefinitionError, match="a queue of turns, and decorates nothing.*@agent"):
        here(look)
    with pytest.raises(TypeError, match="colour"):
        here("helper", "Helps.", [], colour="red")


def test_a_decorator_that_is_used_like_a_queue_of_turns_says_so():
    here: Any = agent
    with pytest.raises(DefinitionError, match=r"not 'helper'.*a queue of turns is Agent\(name"):
        here("helper", tools=[LOOK])


def test_a_subclass_of_a_queue_takes_what_it_likes():
    class Modelled(Agent):
        def __init__(self, model: str) -> None:
            super().__init__("modelled", "Has a model.", [])
            self.model = model

    with registries():
        assert repr(Modelled(model="local")) == "<Agent modelled, a queue of 0 turns>"


def test_the_first_line_of_help_and_the_repr_tell_them_apart():
    assert "queue agent, without a model" in (Agent.__doc__ or "").split("\n")[0]
    assert "which a model carries out" in (agent.__doc__ or "").split("\n")[0]

    @agent
    def translate(text: str) -> str:
        return text

    assert repr(translate) == "<AgentFunction translate>"
