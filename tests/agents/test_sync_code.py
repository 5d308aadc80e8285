"""Agents that sync code calls."""

import pytest

from treefold import AgentFunction, CodeFunction, Limits, RunContext, Runtime
from treefold.core.errors import UsageError
from treefold.testing import ScriptedModel


def test_an_agent_can_be_called_like_a_function_by_sync_code_of_a_call():
    greet = AgentFunction("greet", "", user_prompt_template="Say hello.")

    def twice(ctx: RunContext) -> list[str]:
        return [greet().result(60), greet().result(60)]

    function = CodeFunction(callable=twice, uses=[greet])
    with Runtime([function], models=ScriptedModel("Hello!", "Hi!"), limits=Limits(1)) as runtime:
        node = runtime.invoke(function)
        assert node.result(60) == ["Hello!", "Hi!"]
        assert [child.path for child in runtime.get_subtree(node.id)] == ["1", "1.1", "1.2"]


def test_an_agent_called_where_no_loop_runs_says_what_to_do():
    greet = AgentFunction("greet", "", user_prompt_template="Say hello.")
    with pytest.raises(UsageError, match=r"use run_sync\(\.\.\.\)"):
        greet()
