"""What the conversation of an agent keeps to when another process goes on with it."""

from pathlib import Path
from typing import Any, Final

from support import wait
from treefold import (
    AgentFunction,
    Budget,
    Edit,
    FromFile,
    FunctionArg,
    MemoryStore,
    Node,
    Runtime,
    ToolUse,
    UserText,
    agent,
    registries,
    tool,
)
from treefold.models import Caching
from treefold.testing import HANGS, ScriptedModel
from treefold.toolbox import human_in_loop

PATIENCE: Final = 60  # seconds

with registries():

    @tool
    async def look() -> str:
        return "nothing"


_BEFORE_LAST: Final = 3  # parts: a prompt, a call and its result
LOOKS: Final = ToolUse("1", "look")
ASKS: Final = ToolUse("1", "human_in_loop", {"question": "Where?"})
helper: Final = AgentFunction(
    "helper", "", user_prompt_template="Help.", uses=[look, human_in_loop]
)


class Noting(ScriptedModel):
    """Notes how long it is told to keep each prompt."""

    def __init__(self, *script: Any) -> None:
        super().__init__(*script)
        self.kept: list[Caching | None] = []

    def open(self, system: Any = "", functions: Any = (), settings: Any = None, **more: Any) -> Any:
        self.kept.append(settings.caching)
        return super().open(system, functions, settings, **more)


def answered(runtime: Runtime) -> Node:
    """Answer what the only open tree asks; return its top-level call when it has ended."""
    [node] = runtime.recover()
    [question] = wait(runtime.questions)
    runtime.answer(question.id, "here")
    node.result(PATIENCE)
    return node


def test_how_long_a_prompt_is_kept_is_decided_once_for_an_agent() -> None:
    store = MemoryStore()
    model = Noting(LOOKS, LOOKS, "found", ASKS)
    with Runtime([helper], models=model, store=store) as runtime:
        runtime.invoke(helper).result(PATIENCE)
        runtime.invoke(helper)
    later = Noting("thanks", "nothing more")
    with Runtime([helper], models=later, store=store) as runtime:
        node = answered(runtime)
        runtime.fork(node, at=2).result(PATIENCE)
    assert model.kept == [Caching.NONE, Caching.HOUR]
    assert later.kept == [Caching.HOUR, Caching.HOUR]


def test_calls_that_an_earlier_process_made_count_when_it_is_decided_how_long() -> None:
    store = MemoryStore()
    with Runtime([helper], models=ScriptedModel(LOOKS, LOOKS, ASKS), store=store) as runtime:
        runtime.invoke(helper)
    later = Noting("thanks", "nothing to do")
    with Runtime([helper], models=later, store=store) as runtime:
        answered(runtime)
        runtime.invoke(helper).result(PATIENCE)
    assert later.kept == [Caching.NONE, Caching.HOUR]


def test_a_model_is_told_once_that_the_budget_is_used_up() -> None:
    store = MemoryStore()
    runtime = Runtime([helper], models=ScriptedModel(LOOKS, HANGS), store=store)
    node = runtime.invoke(helper, budget=Budget(calls=1, last_call=True))
    told = wait(lambda: said if len(said := node.get_transcript()) > _BEFORE_LAST else None)
    runtime.close()
    later = ScriptedModel("That is all.")
    with Runtime([helper], models=later, store=store) as runtime:
        [node] = runtime.recover()
        assert node.result(PATIENCE) == "That is all."
    assert isinstance(told[-1], UserText)
    assert list(later.requests[0].transcript) == told


def test_what_an_agent_was_told_stays_when_the_files_that_it_comes_from_are_gone(
    tmp_path: Path,
) -> None:
    rules, text, store = tmp_path / "rules", tmp_path / "text", MemoryStore()
    rules.write_text("Be brief about {text}.")
    text.write_text("moss")
    reader = AgentFunction(
        "reader",
        "",
        args=[FunctionArg("text", str, "")],
        system_prompt=FromFile(rules),
        user_prompt_template="Read {text}.",
        uses=[human_in_loop],
    )
    with Runtime([reader], models=ScriptedModel(ASKS), store=store) as runtime:
        runtime.invoke(reader, {"text": FromFile(text)})
    rules.unlink()
    text.unlink()
    later = ScriptedModel("read", "read again")
    with Runtime([reader], models=later, store=store) as runtime:
        node = answered(runtime)
        assert node.inputs == {"text": FromFile(str(text))}
    [request] = later.requests
    assert (request.system, request.transcript[0]) == (
        "Be brief about moss.",
        UserText("Read moss."),
    )


def test_the_body_of_an_agent_is_not_run_again() -> None:
    store, built = MemoryStore(), list[str]()

    @agent(uses=[human_in_loop])
    def find(what: str) -> str:
        built.append(what)
        return f"Find {what}."

    with Runtime([find], models=ScriptedModel(ASKS), store=store) as runtime:
        runtime.invoke(find, {"what": "it"})
    with Runtime([find], models=ScriptedModel("found", "found again"), store=store) as runtime:
        node = answered(runtime)
        assert node.get_transcript()[0] == UserText("Find it.")
        assert built == ["it"]
        runtime.fork(node, edit=Edit(args={"what": "more"})).result(PATIENCE)
    assert built == ["it", "more"]
