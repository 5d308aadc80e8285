"""What is left out of requests was said all the same: its keys and numbers stay."""

from collections.abc import Mapping
from typing import Any, Final

from support import wait
from treefold import (
    AgentFunction,
    MemoryStore,
    ModelText,
    Node,
    RunContext,
    Runtime,
    ToolUse,
    UserText,
    registries,
    tool,
)
from treefold.agents.loop import Loop
from treefold.agents.task import AgentPolicy, Task
from treefold.core.agent_events import ResponseCompleted
from treefold.core.conversation import AgentConversation, Inputs
from treefold.core.epoch import Epoch
from treefold.models import ModelSettings
from treefold.testing import ScriptedModel, replay
from treefold.toolbox import human_in_loop

PATIENCE: Final = 60  # seconds
GREET, LOOK, MET = UserText("Greet."), UserText("Look."), UserText("You have greeted.")
looked: list[str] = []

with registries():

    @tool
    async def look() -> str:
        looked.append("once")
        return "a cup"


class Forgetting(AgentPolicy):
    """Sends a few words in the place of what was said before the second response."""

    def __init__(self, ctx: RunContext, conversation: AgentConversation, task: Task) -> None:
        super().__init__(ctx, conversation, task)
        self._begin = conversation.begin

    def answer(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        return super().answer(response) if response.step > 1 else (None, [LOOK])

    async def follow(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        if response.step == 2:
            self._begin(Epoch(why="it forgets", since=2, head=(MET.text,), bare=2))
        return await super().follow(response)


class Forgetful(AgentFunction):
    """An agent that greets, looks and asks."""

    async def run_call(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        conversation: AgentConversation = ctx.conversation
        task = Task(
            model=conversation.find_model(None),
            system="",
            prompt=GREET.text,
            functions=self.uses,
            settings=ModelSettings(),
            result=None,
            max_steps=9,
            parallel_tools=False,
        )
        policy = Forgetting(ctx, conversation, task)
        conversation.open(task.model, task.system, task.functions, task.settings)
        prior = conversation.prior
        inputs = () if prior.response else await policy.first_inputs(prior)
        return await Loop(ctx, conversation, task.model, policy).run(inputs, task.max_steps)


forgetful: Final = Forgetful(
    "forgetful", "", user_prompt_template=GREET.text, uses=[look, human_in_loop]
)
# Both calls have the same id: only the numbers of the responses tell them apart.
LOOKS: Final = ToolUse("1", "look")
ASKS: Final = ToolUse("1", "human_in_loop", {"question": "Whose?"})


def answered(runtime: Runtime, node: Node, text: str) -> Any:
    [question] = wait(runtime.questions)
    runtime.answer(question.id, text)
    return node.result(PATIENCE)


def test_a_run_that_leaves_out_what_was_said_first_is_resumed_forked_and_replayed():
    looked.clear()
    store, model = MemoryStore(), ScriptedModel("Hello.", LOOKS, ASKS)
    with Runtime([forgetful], models=model, store=store) as runtime:
        runtime.invoke(forgetful)
        wait(runtime.questions)
    later = ScriptedModel("Ada's.", "Bo's.", LOOKS, "A cup.")
    with Runtime([forgetful], models=later, store=store) as runtime:
        [node] = runtime.recover()
        assert answered(runtime, node, "Ada") == "Ada's."
        # All that was said is known, and counts.
        said = node.get_transcript()
        assert (said[0], len(said)) == (GREET, 8)
        assert [(child.function.name, child.tool_use_id) for child in node.children] == [
            ("look", "1"),
            ("human_in_loop", "1"),
        ]
        assert answered(runtime, runtime.fork(node, at=3), "Bo") == "Bo's."
        assert runtime.fork(node, at=1).result(PATIENCE) == "A cup."
    assert looked == ["once", "once"]  # again in the fork that had not looked yet

    sent = [list(request.transcript) for request in (*model.requests, *later.requests)]
    first, second, third, resumed, bo, early, last = sent
    assert first == [GREET]
    assert second[0] == early[0] == GREET
    head = [MET, ModelText("Understood.")]
    assert [request[:3] for request in (third, resumed, bo, last)] == [[*head, LOOK]] * 4
    assert resumed[: len(third)] == bo[: len(third)] == third
    assert resumed == [*head, *said[2:-1]]
    for tree in store.trees():
        replay([forgetful], store, tree.id).check()
