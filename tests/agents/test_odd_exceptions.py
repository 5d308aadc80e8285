"""Exceptions of another runtime, exceptions that are pickled, and ones that cannot be printed."""

import copy
import pickle
from typing import Any

import pytest

from agent_scripts import run_agent, told, worker
from treefold import (
    AgentException,
    BudgetExceeded,
    CallGraphError,
    CancellationException,
    CodeFunction,
    DeniedError,
    EnsembleError,
    ModelProviderException,
    ModelRefusedError,
    NoAnswerError,
    RunContext,
    Runtime,
    StepLimitError,
    ToolUse,
    TreefoldError,
)
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.toolbox import raise_exception


async def test_an_agent_that_gives_up_in_another_runtime_does_not_end_the_one_whose_tool_ran_it():
    inner = worker("inner", raise_exception)
    gives_up = ScriptedModel(ToolUse("1", "raise_exception", {"msg": "no way"}))

    async def delegate(ctx: RunContext) -> str:
        async with Runtime([inner], models=gives_up) as runtime:
            return await runtime.invoke(inner)

    model = ScriptedModel(ToolUse("1", "delegate"), "done otherwise")
    node = await run_agent(worker("outer", CodeFunction(callable=delegate)), models=model)
    assert node.outputs == "done otherwise"
    assert told(model.requests[1])[0].content == "AgentException: no way"


ERRORS = [
    AgentException("no way"),
    BudgetExceeded("20 of 20 calls are used up"),
    CallGraphError(["a: it calls itself", "b: so does it"]),
    CancellationException("fetch", "1.2", "no longer needed"),
    DeniedError("bash", "not on a Sunday"),
    EnsembleError("nobody could choose", ["4", "5"]),
    ModelProviderException("OpenAIModel", "qwen3", "it is down", status=500, attempts=5),
    ModelRefusedError("gemini", "SAFETY", "Well"),
    NoAnswerError("it was cut off", "It is"),
    StepLimitError("100 requests"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_can_be_pickled_and_copied(error: TreefoldError):
    for made in pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error):
        assert (type(made), str(made)) == (type(error), str(error))
        assert vars(made).items() >= vars(error).items()


class Unspeakable(Exception):  # noqa: N818 - it says nothing
    def __str__(self) -> str:
        raise RuntimeError("cannot say")

    __repr__ = __str__


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


async def test_a_model_is_told_something_of_every_result():
    strange = {
        "deep": nested(100_000),
        "mute": Unspeakable(),
        "bytes": b"\xff",
        "nan": float("nan"),
    }
    functions = [
        CodeFunction(name=name, callable=lambda ctx, value=value: value)
        for name, value in strange.items()
    ]
    model = ScriptedModel([ToolUse(name, name) for name in strange], "done")
    node = await run_agent(worker("boss", *functions), models=model)
    assert node.outputs == "done"
    found = {result.tool_use_id: result.content for result in told(model.requests[1])}
    assert found == {"deep": "<list>", "mute": "<Unspeakable>", "bytes": r"b'\xff'", "nan": "nan"}


async def test_a_model_is_told_of_an_exception_that_cannot_be_printed():
    def boom(ctx: RunContext) -> None:
        raise Unspeakable

    model = ScriptedModel(ToolUse("1", "boom"), "done")
    node = await run_agent(worker("boss", CodeFunction(callable=boom)), models=model)
    assert node.outputs == "done"
    assert told(model.requests[1])[0].content == "Unspeakable: (its __str__ raised RuntimeError)"


async def test_a_model_that_raises_what_cannot_be_printed_is_a_provider_that_failed():
    def boom(request: ScriptedRequest) -> str:
        raise Unspeakable

    node = await run_agent(worker("boss"), models=ScriptedModel(boom))
    assert isinstance(node.exception, ModelProviderException)
    assert isinstance(node.exception.inner, Unspeakable)
