"""The toolbox functions by which agents reach people, files and their caller."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ended, run, run_agent, told, until, worker
from treefold import (
    AgentException,
    CodeFunction,
    NodeState,
    RunContext,
    Runtime,
    ToolUse,
)
from treefold.models import Caching, caching_policy
from treefold.testing import ScriptedModel
from treefold.toolbox import (
    ApplyDiffPatch,
    TextEditor,
    apply_diff_patch,
    human_in_loop,
    raise_exception,
    return_result,
)

PATCH = """\
--- a/poem.txt
+++ b/poem.txt
@@ -1,3 +1,3 @@
 roses are red
-violets are green
+violets are blue
 and so on
"""


def asking(id: str, question: str, **more: Any) -> ToolUse:
    return ToolUse(id, "human_in_loop", {"question": question, **more})


# --- a person in the loop


async def test_a_model_asks_a_person_and_what_he_says_is_the_output_of_the_tool():
    boss = worker("boss", human_in_loop)
    model = ScriptedModel([asking("a", "Shall I sign off?")], "done")
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        [question] = await until(runtime.questions)
        assert (question.kind, question.text) == ("human", "Shall I sign off?")
        assert question.choices == ()
        [child] = node.get_children()
        assert not isinstance(child, list)
        assert question.node_id == child.id
        assert child.state is NodeState.Paused
        assert len(model.requests) == 1  # it blocks
        runtime.answer(question.id, "Yes, but mind the gap.")
        assert await node == "done"
    [result] = told(model.requests[1])
    assert (result.content, result.is_error) == ("Yes, but mind the gap.", False)


async def test_a_model_may_offer_choices():
    boss = worker("boss", human_in_loop)
    model = ScriptedModel([asking("a", "Which?", choices=["left", "right"])], "done")
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        [question] = await until(runtime.questions)
        assert question.choices == ("left", "right")
        with pytest.raises(ValueError, match="left"):
            runtime.answer(question.id, "up")
        runtime.answer(question.id, "right")
        await node
    assert told(model.requests[1])[0].content == "right"


async def test_two_agents_that_wait_for_people_are_answered_by_question_and_not_by_order():
    boss = worker("boss", human_in_loop)

    def reply(request: Any) -> Any:
        results = told(request)
        return results[0].content if results else [asking("a", "?")]

    async with Runtime([boss], models=ScriptedModel(reply)) as runtime, asyncio.timeout(60):
        nodes = [runtime.invoke(boss) for _ in range(2)]
        await until(lambda: len(runtime.questions()) == 2)
        for question in reversed(runtime.questions()):
            runtime.answer(question.id, f"for {question.node_id}")
        for node in nodes:
            [child] = node.get_children()
            assert not isinstance(child, list)
            assert await node == f"for {child.id}"


async def test_code_may_ask_a_person_with_the_same_function():
    async def top(ctx: RunContext) -> Any:
        return await ctx.invoke(human_in_loop, {"question": "Which colour?"})

    code = CodeFunction(callable=top, uses=[human_in_loop])
    async with Runtime([code]) as runtime, asyncio.timeout(60):
        node = runtime.invoke(code)
        [question] = await until(runtime.questions)
        runtime.answer(question.id, "blue")
        assert await node == "blue"


def test_an_agent_that_can_ask_a_person_is_not_one_with_leaf_functions_only():
    assert human_in_loop.asks_people
    assert caching_policy([human_in_loop]) is Caching.NONE
    assert caching_policy([raise_exception]) is Caching.MINUTES


def test_models_are_told_when_to_ask_a_person():
    assert human_in_loop.name == "human_in_loop"
    assert set(human_in_loop.input_schema["properties"]) == {"question", "choices"}
    assert human_in_loop.input_schema["required"] == ["question"]
    assert len(human_in_loop.description) > 40


# --- giving up, and giving back


async def test_raising_is_for_agents_that_were_given_the_function():
    node = await run_agent(
        worker("boss", raise_exception),
        models=ScriptedModel(ToolUse("a", "raise_exception", {"msg": "no"})),
    )
    assert isinstance(node.exception, AgentException)
    assert (node.exception.message, node.exception.agent) == ("no", "boss")


async def test_an_agent_may_ask_a_person_before_it_gives_up():
    boss = worker("boss", human_in_loop, raise_exception)
    model = ScriptedModel(
        [asking("a", "Where is the key?")], ToolUse("b", "raise_exception", {"msg": "no key"})
    )
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        [question] = await until(runtime.questions)
        runtime.answer(question.id, "I do not know.")
        await ended(node)
    assert isinstance(node.exception, AgentException)


async def test_return_result_ends_an_agent_with_what_it_was_given():
    assert return_result.input_schema["required"] == ["result"]
    model = ScriptedModel(ToolUse("a", "return_result", {"result": "the result"}), "never")
    node = await run_agent(worker("boss", return_result), models=model)
    assert node.outputs == "the result"
    assert node.state is NodeState.Success
    assert len(model.requests) == 1


async def test_agents_hand_files_to_each_other_by_their_paths(tmp_path: Path):
    editor = TextEditor(tmp_path)
    scribe = worker("scribe", editor, return_result)
    create = {"command": "create", "path": "report.md", "file_text": "# Report\n"}
    model = ScriptedModel(
        [ToolUse("a", "text_editor", create)],
        ToolUse("b", "return_result", {"result": str(tmp_path / "report.md")}),
    )
    node = await run_agent(scribe, models=model)
    assert node.outputs == str(tmp_path / "report.md")
    assert (tmp_path / "report.md").read_text() == "# Report\n"


# --- patches


def write_poem(folder: Path, second: str = "violets are green") -> tuple[Path, Path]:
    file, patch = folder / "poem.txt", folder / "poem.patch"
    file.write_text(f"roses are red\n{second}\nand so on\n")
    patch.write_text(PATCH)
    return file, patch


async def test_a_patch_is_applied_to_a_file_and_the_new_version_goes_to_the_output(tmp_path: Path):
    file, patch = write_poem(tmp_path)
    output = tmp_path / "new.txt"
    args = {"file": str(file), "patch": str(patch), "output": str(output)}
    node = await run(apply_diff_patch, args)
    assert node.exception is None
    assert output.read_text() == "roses are red\nviolets are blue\nand so on\n"
    assert "green" in file.read_text()


async def test_without_an_output_the_file_itself_is_changed(tmp_path: Path):
    file, patch = write_poem(tmp_path)
    node = await run(ApplyDiffPatch(root=tmp_path), {"file": "poem.txt", "patch": "poem.patch"})
    assert node.exception is None
    assert "blue" in file.read_text()
    assert patch.read_text() == PATCH


async def test_an_agent_has_a_patch_applied(tmp_path: Path):
    file, patch = write_poem(tmp_path)
    call = ToolUse("a", "apply_diff_patch", {"file": str(file), "patch": str(patch)})
    model = ScriptedModel([call], "done")
    node = await run_agent(worker("boss", apply_diff_patch), models=model)
    assert node.outputs == "done"
    assert not told(model.requests[1])[0].is_error
    assert "blue" in file.read_text()
