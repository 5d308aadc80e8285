"""``examples/digest.py``, which ``make demo`` runs."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

import warm_python
from agent_scripts import asked, until
from example_runs import EXAMPLES
from treefold import NodeState, NodeView, Runtime, attach, registries
from treefold.testing import ScriptedFailure, ScriptedModel, ScriptedRequest
from treefold.testing.scripted import Reply
from wire import ModelServer, Request, openai_wire, stalled_after
from wire.openai_wire import MODEL
from wire.replies import Reply as WireReply

with registries():  # other tests look at all the tools that there are
    from digest import KEEP, digest

TEXTS = {
    "bees": "Bees\n\nBees dance when they come home.\nThe dance shows the way to flowers.\n",
    "rope": "Rope\n\nRope is made of hemp. A rope walk is long.\n",
}
NOTES = "- Bees dance when they come home.\n- Rope is made of hemp."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def plays(request: ScriptedRequest) -> Reply:
    """Do what each agent is asked to."""
    prompt = asked(request)
    if prompt.startswith(KEEP):
        return prompt.partition("\n\n")[2]
    assert NOTES in prompt
    return "Bees dance when they come home. Rope is made of hemp."


def run(folder: Path, script: ScriptedModel) -> str:
    with Runtime([digest], models=script) as runtime:
        return runtime.invoke(digest, {"folder": str(folder)}).result()


def test_each_part_is_written_by_the_model_and_the_digest_says_so(folder: Path):
    model = ScriptedModel(plays)
    assert run(folder, model) == (
        "  Bees dance when they come home.\n"
        "    chosen by the model out of the notes\n"
        "\n"
        "  Bees dance when they come home. Rope is made of hemp.\n"
        "    written by the model from the notes\n"
        "\n"
        "  Bees  Bees dance when they come home.\n"
        "  Rope  Rope is made of hemp.\n"
        "    the first sentence that the model kept of each text"
    )
    assert len(model.requests) == 2 + 3 + 1  # notes, the ensemble, the beginning


def test_a_summary_with_words_of_its_own_is_tried_again_and_then_not_believed(folder: Path):
    def invents(request: ScriptedRequest) -> Reply:
        prompt = asked(request)
        if "hemp. A rope" in prompt:
            return "Rope is a metaphor for climate change."
        if prompt.startswith(KEEP) and "shows the way" in prompt:
            return "Bees are remarkable animals."
        if "Shorten" in prompt:
            return 'The original text is: "The dance shows the way." It is short.'
        return "The dance shows the way."

    text = run(folder, ScriptedModel(invents))
    assert "  Bees  The dance shows the way.\n  Rope  Rope is made of hemp. *\n" in text
    assert text.endswith("; * is the text's own: the model failed")


def test_what_is_not_in_the_notes_is_marked_or_left_out(folder: Path):
    def adds(request: ScriptedRequest) -> Reply:
        made_up = "Elba is an ancient island."
        return plays(request) if KEEP in asked(request) else f"{plays(request)} {made_up}"

    assert "hemp. Elba is an ancient island. (?)\n" in run(folder, ScriptedModel(adds))

    def rambles(request: ScriptedRequest) -> Reply:
        return plays(request) if KEEP in asked(request) else "Elba is an ancient island."

    text = run(folder, ScriptedModel(rambles))
    assert "(what the model wrote from the notes had little to do with them)" in text
    assert "Elba" not in text


def test_answers_that_cannot_be_reconciled_are_not_lost(folder: Path):
    def fails(request: ScriptedRequest) -> Reply:
        return ScriptedFailure() if "experts" in asked(request) else plays(request)

    assert "written by the model from the notes" in run(folder, ScriptedModel(fails))


def test_a_folder_without_texts_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no .txt file in "):
        run(tmp_path, ScriptedModel())


def command(folder: Path, store: Path, model: str) -> list[str]:
    where = ["--arg", f"folder={folder}", "--store", str(store), "--model", model]
    return warm_python.command("-m", "treefold", "run", f"{EXAMPLES}/digest.py:digest", *where)


def calls_in(store: Path) -> list[NodeView]:
    """Return all calls of the run."""
    if not store.exists():
        return []
    with attach(store) as observer:
        stack = [observer.get_view(tree.id) for tree in observer.trees()]
    found: list[NodeView] = []
    while stack:
        found.append(stack.pop())
        stack.extend(found[-1].children)
    return found


def played(request: Request) -> WireReply:
    prompt = str(request.json["messages"][-1]["content"])
    return openai_wire.text(prompt.partition("\n\n")[2] if prompt.startswith(KEEP) else "Bees.")


async def test_a_run_that_is_killed_half_way_goes_on_and_asks_for_no_answer_twice(
    folder: Path, tmp_path: Path
):
    store = tmp_path / "run.db"
    async with ModelServer() as server:
        stuck = stalled_after(openai_wire.text("nobody gets to read this"), 0)
        server.on_request = lambda one: stuck if "hemp" in str(one.json) else played(one)
        args = command(folder, store, f"openai:{MODEL}@{server.url}/v1")
        process = await asyncio.create_subprocess_exec(*args, stderr=PIPE)
        try:
            await until(
                lambda: any(call.fn == "note" and call.state.final for call in calls_in(store))
            )
        finally:
            process.kill()
            await process.communicate()
        assert process.returncode == -signal.SIGKILL
        before = {call.id: call.ended_at for call in calls_in(store) if call.state.final}
        asked_before = len(server.requests)

        server.on_request = played
        args[args.index("--model") + 1] = "auto"  # takes the model that the run has begun with
        again = await asyncio.create_subprocess_exec(*args, stdout=PIPE, stderr=PIPE)
        async with asyncio.timeout(60):
            printed, shown = await again.communicate()
    assert again.returncode == 0, shown
    assert f"(run 1): {len(before)} of its calls are done," in shown.decode()
    assert "==> resuming this run" in shown.decode()
    assert "  Rope  Rope is made of hemp.\n" in printed.decode()
    after = {call.id: call for call in calls_in(store)}
    assert {id: after[id].ended_at for id in before} == before
    assert after[1].state is NodeState.Success
    bees = [
        one for one in server.requests if "Bees dance when they come home. The" in str(one.json)
    ]
    assert len(bees) == 1
    assert len(server.requests) - asked_before == 1 + 3 + 1


async def test_the_model_that_runs_here_does_it(smollm2: Path, folder: Path, tmp_path: Path):
    (folder / "rope.txt").unlink()
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    args = command(folder, tmp_path / "run.db", "auto")
    process = await asyncio.create_subprocess_exec(*args, stdout=PIPE, stderr=PIPE, env=kept)
    async with asyncio.timeout(600):  # a model that runs here needs all cores
        printed, shown = await process.communicate()
    assert process.returncode == 0, shown
    assert "\n  Bees  " in printed.decode()
    assert "    the first sentence that the model kept of each text" in printed.decode()
