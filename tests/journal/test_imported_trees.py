"""Runs that were imported: they do nothing until a person resumes them by name."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from command_line import treefold
from journal.processes import Lives, World, question_of, result
from support import wait
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    CodeFunction,
    HookDecision,
    NodeState,
    PreToolUseEvent,
    RunContext,
    Runtime,
    SqliteStore,
    ToolUse,
    attach,
)
from treefold.errors import HeldBackError, StoreError, UsageError
from treefold.events import CallRequested, TreeForked
from treefold.stores import export_tree, import_tree
from treefold.testing import ScriptedModel

KEY = "nightly"
WHY = "it was imported; 'treefold resume 1' lets it run"


def deploy_of(world: World) -> CodeFunction:
    """Return code that does something, and is killed in a world where that is possible."""
    step = world.tool("step", dies=True, repeatable=True)

    async def deploy(ctx: RunContext) -> str:
        return await ctx.invoke(step, {"n": 1})

    return CodeFunction(callable=deploy, uses=[step], repeatable=True)


def dies_deploying(world: World) -> None:
    deploy = deploy_of(world)
    with world.runtime(deploy) as runtime:
        result(runtime.invoke(deploy, key=KEY))


async def keep(ctx: RunContext, word: str) -> str:
    return word


KEEP = CodeFunction(callable=keep, repeatable=True)


def asking_of(world: World) -> CodeFunction:
    async def deploy(ctx: RunContext) -> str:
        answer = await ctx.ask("Deploy?", ["yes", "no"])
        world.add("step")
        return answer

    return CodeFunction(callable=deploy, repeatable=True)


def dies_asking(world: World) -> None:
    deploy = asking_of(world)
    with world.runtime(deploy) as runtime:
        runtime.invoke(deploy, key=KEY)
        world.kept_questions()
        world.die()


@pytest.fixture
def there(tmp_path: Path) -> World:
    """Where the run was made."""
    (tmp_path / "there").mkdir()
    return World(tmp_path / "there")


@pytest.fixture
def here(tmp_path: Path) -> World:
    """Where it is imported."""
    (tmp_path / "here").mkdir()
    return World(tmp_path / "here")


def export_to(world: World, file: Path) -> Path:
    with SqliteStore(world.file) as store:
        export_tree(store, store.trees()[-1].id, file)
    return file


def import_into(world: World, file: Path) -> int:
    with SqliteStore(world.file) as store:
        store.join()
        return import_tree(store, file)


def write_lines(file: Path, lines: list[bytes]) -> None:
    """Write the lines of an exported tree with a last one that fits to them."""
    end = {"lines": len(lines), "crc": crc32(b"".join(lines))}
    file.write_bytes(b"".join([*lines, json.dumps(end, separators=(",", ":")).encode() + b"\n"]))


def forge(file: Path, kind: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the entries of one kind in an exported tree, as nobody can see later."""
    lines = list[bytes]()
    for line in file.read_bytes().splitlines(keepends=True)[:-1]:
        data = json.loads(line)
        if data.get("entry", {}).get("kind") == kind:
            change(data["entry"])
        lines.append(json.dumps(data, separators=(",", ":")).encode() + b"\n")
    write_lines(file, lines)


def add_to_body(entry: dict[str, Any], **fields: Any) -> None:
    entry["body"] = json.dumps(json.loads(entry["body"]) | fields, separators=(",", ":"))


@pytest.fixture
def file(there: World, lives: Lives, tmp_path: Path) -> Path:
    """A run that was killed in the middle of its work."""
    lives.killed(dies_deploying, there)
    return export_to(there, tmp_path / "run.jsonl")


def test_a_program_that_starts_does_not_run_it_and_says_why(here: World, file: Path):
    tree = import_into(here, file)
    for _ in range(2):
        with here.runtime(deploy_of(here)) as runtime:
            assert runtime.recover() == []
            view = runtime.get_view(tree)
            assert (view.state, view.inert, view.held_back) == (NodeState.Running, True, WHY)
            assert view.status == f"held back: {WHY}"
    assert here.done("step") == 0
    assert here.kinds(tree)[-1] == "TreeImported"


def test_it_is_shown_as_inert_before_any_program_has_opened_the_journal(here: World, file: Path):
    tree = import_into(here, file)
    with attach(here.file) as observer:
        assert observer.get_view(tree).held_back == WHY


def test_a_program_lets_it_run_by_its_id(here: World, file: Path):
    tree = import_into(here, file)
    with here.runtime(deploy_of(here)) as runtime:
        node = runtime.resume(tree)
        assert result(node) == "step 1"
        view = runtime.get_view(tree)
        assert (view.inert, view.held_back) == (False, "")
    assert here.done("step") == 1
    with here.runtime(deploy_of(here)) as runtime, pytest.raises(UsageError, match="not paused"):
        runtime.resume(tree)
    assert here.done("step") == 1


def test_a_person_lets_it_run_at_the_command_line(here: World, file: Path):
    tree = import_into(here, file)
    done = treefold("resume", str(tree), "--store", str(here.file))
    assert done.returncode == 0, done
    assert done.stdout.startswith("no process drives"), done
    with here.runtime(deploy_of(here)) as runtime:
        wait(lambda: runtime.get_view(tree).state.final)
    assert here.done("step") == 1


def test_a_running_program_is_told_to_let_it_run(here: World, file: Path):
    tree = import_into(here, file)
    with here.runtime(deploy_of(here)) as runtime:
        done = treefold("resume", str(tree), "--store", str(here.file))
        assert (done.returncode, done.stdout) == (0, "deploy (run 1) resumes\n")
        wait(lambda: runtime.get_view(tree).state.final)
    assert here.done("step") == 1


def test_the_program_that_calls_its_key_does_not_run_it(here: World, file: Path):
    import_into(here, file)
    deploy = deploy_of(here)
    for functions in ([deploy], []):
        with (
            Runtime(functions, store=here.file) as runtime,
            pytest.raises(HeldBackError, match=f"run 1 is held back: {WHY}"),
        ):
            runtime.invoke(deploy, key=KEY)
    assert here.done("step") == 0


def test_nothing_in_the_file_can_say_that_it_was_accepted(here: World, file: Path):
    *lines, _ = file.read_bytes().splitlines(keepends=True)
    number = max(
        entry["number"]
        for line in lines
        if (entry := json.loads(line).get("entry")) and entry["node"] == entry["tree"]
    )
    forged = [
        {"tree": 1, "node": 1, "kind": kind, "body": "{}", "at": 1767225600.0}
        for kind in ("ImportAccepted", "TreeResumed")
    ]
    for index, entry in enumerate(forged, number + 1):
        line = {"entry": entry | {"number": index}, "texts": []}
        lines.append(json.dumps(line).encode() + b"\n")
    write_lines(file, lines)
    tree = import_into(here, file)
    with here.runtime(deploy_of(here)) as runtime:
        assert runtime.get_view(tree).inert
    assert here.done("step") == 0


@pytest.fixture
def fork(there: World, here: World, tmp_path: Path) -> Path:
    """Export a fork; where it is imported, there is another run with the id of its source."""
    for world, word in (here, "secret"), (there, "theirs"):
        with world.runtime(KEEP) as runtime:
            node = runtime.invoke(KEEP, {"word": word})
            result(node)
            if world is there:
                result(runtime.fork(node.id))
    return export_to(there, tmp_path / "fork.jsonl")


def test_a_file_cannot_take_a_local_run_for_the_past_of_its_own(here: World, fork: Path):
    forge(fork, "TreeForked", lambda entry: add_to_body(entry, source=1))
    tree = import_into(here, fork)
    with attach(here.file) as observer:
        view = observer.get_view(tree)
        (forked,) = [e for e in observer.events(tree).read() if isinstance(e, TreeForked)]
    assert (view.inputs, forked.source) == ({"word": "theirs"}, tree - 1)


def test_a_file_cannot_give_a_call_another_place(here: World, file: Path):
    place = {"node": 1, "parent": 1, "key": "mine", "function": "other", "index": 7, "at": 1.0}
    forge(file, "CallRequested", lambda entry: add_to_body(entry, **place))
    tree = import_into(here, file)
    with attach(here.file) as observer:
        requested = [e for e in observer.events(tree).read() if isinstance(e, CallRequested)]
    assert [(event.node, event.parent, event.function) for event in requested] == [
        (tree, None, "deploy"),
        (tree + 1, tree, "step"),
    ]
    assert all((event.key, event.index, event.at) != ("mine", 7, 1.0) for event in requested)


def test_an_event_of_a_file_that_places_a_call_and_has_no_place_is_damage(here: World, file: Path):
    place = {"parent": None, "index": 1, "key": "#1", "function": "deploy", "is_agent": False}
    place |= {"source": 1, "inherited": 1, "tree_number": 1, "cut": 1, "length": 1, "reopened": [1]}

    def graft(entry: dict[str, Any]) -> None:
        add_to_body(entry, **place)
        entry["kind"] = "TreeForked"

    forge(file, "CallStarted", graft)
    tree = import_into(here, file)
    with attach(here.file) as observer, pytest.raises(StoreError, match="TreeForked has no call"):
        observer.events(tree).read()


def test_it_stays_accepted_when_its_process_is_killed(here: World, file: Path, lives: Lives):
    tree = import_into(here, file)
    with attach(here.file) as observer:
        observer.resume(tree)
    lives.killed(dies_accepted, here)
    assert here.done("step") == 1
    with here.runtime(deploy_of(here)) as runtime:
        [node] = runtime.recover()
        assert result(node) == "step 1"
    assert here.done("step") == 2


def dies_accepted(world: World) -> None:
    with world.runtime(deploy_of(world)) as runtime:
        wait(lambda: runtime.get_view(1).state.final)


def test_exported_and_imported_again_it_is_inert_again(here: World, file: Path, tmp_path: Path):
    tree = import_into(here, file)
    with attach(here.file) as observer:
        observer.resume(tree)
    again = export_to(here, tmp_path / "again.jsonl")
    other = World(tmp_path)
    assert import_into(other, again) == tree
    with other.runtime(deploy_of(other)) as runtime:
        assert runtime.get_view(tree).inert
    assert other.done("step") == 0


def test_it_can_be_cancelled(here: World, file: Path):
    tree = import_into(here, file)
    with here.runtime(deploy_of(here)) as runtime:
        runtime.cancel(tree, "not wanted")
        wait(lambda: runtime.get_view(tree).state is NodeState.Canceled)
    assert here.done("step") == 0


def test_a_fork_of_it_runs_because_it_is_made_by_name(here: World, file: Path):
    tree = import_into(here, file)
    with here.runtime(deploy_of(here)) as runtime:
        fork = runtime.fork(tree)
        assert result(fork) == "step 1"
        assert (runtime.get_view(fork.id).inert, runtime.get_view(tree).inert) == (False, True)
    assert here.done("step") == 1


def test_an_answer_is_kept_and_lets_it_run_no_sooner(
    there: World, here: World, lives: Lives, tmp_path: Path
):
    lives.killed(dies_asking, there)
    tree = import_into(here, export_to(there, tmp_path / "asking.jsonl"))
    with here.runtime(asking_of(here)) as runtime:
        assert runtime.recover() == []
        runtime.answer(question_of(runtime).id, "yes")
        assert runtime.get_view(tree).inert
    assert here.done("step") == 0
    with here.runtime(asking_of(here)) as runtime:
        assert result(runtime.resume(tree)) == "yes"
    assert here.done("step") == 1


def test_the_result_of_a_run_that_has_ended_is_found_by_its_key(
    there: World, here: World, tmp_path: Path
):
    deploy = deploy_of(there)
    with there.runtime(deploy) as runtime:
        result(runtime.invoke(deploy, key=KEY))
    tree = import_into(here, export_to(there, tmp_path / "done.jsonl"))
    deploy = deploy_of(here)
    with here.runtime(deploy) as runtime:
        node = runtime.invoke(deploy, key=KEY)
        assert (node.id, result(node)) == (tree, "step 1")
        with pytest.raises(UsageError, match="not paused"):
            runtime.resume(tree)
    assert here.done("step") == 0


def boss_of(world: World) -> AgentFunction:
    step = world.tool("step", dies=True, repeatable=True)
    return AgentFunction("boss", "", user_prompt_template="Go.", uses=[step])


def model_of(world: World) -> ScriptedModel:
    return world.model([ToolUse("1", "step", {"n": 4})], "done")


def dies_in_a_tool(world: World) -> None:
    boss = boss_of(world)
    with world.runtime(boss, models=model_of(world)) as runtime:
        result(runtime.invoke(boss))


async def deny(event: PreToolUseEvent) -> HookDecision:
    return HookDecision(continue_=False, reason="not here")


def test_the_permissions_of_this_program_bind_what_the_file_has_begun(
    there: World, here: World, lives: Lives, tmp_path: Path
):
    lives.killed(dies_in_a_tool, there)
    tree = import_into(here, export_to(there, tmp_path / "boss.jsonl"))
    hooks = {HOOK_PRE_TOOL_USE: [deny]}
    with here.runtime(boss_of(here), models=model_of(here), hooks=hooks) as runtime:
        assert result(runtime.resume(tree)) == "done"
    assert here.done("step") == 0


def test_they_bind_a_fork_of_it_as_well(there: World, here: World, lives: Lives, tmp_path: Path):
    lives.killed(dies_in_a_tool, there)
    tree = import_into(here, export_to(there, tmp_path / "boss.jsonl"))
    hooks = {HOOK_PRE_TOOL_USE: [deny]}
    with here.runtime(boss_of(here), models=model_of(here), hooks=hooks) as runtime:
        for response in (0, 1):
            assert result(runtime.fork(tree, at=response)) == "done"
    assert here.done("step") == 0


async def ask_first(event: PreToolUseEvent) -> HookDecision:
    return HookDecision(ask="May it?")


def test_an_approval_in_the_file_is_none_here(
    there: World, here: World, lives: Lives, tmp_path: Path
):
    lives.killed(dies_approved, there)
    tree = import_into(here, export_to(there, tmp_path / "boss.jsonl"))
    hooks = {HOOK_PRE_TOOL_USE: [ask_first]}
    with here.runtime(boss_of(here), models=model_of(here), hooks=hooks) as runtime:
        node = runtime.resume(tree)
        question = question_of(runtime)
        assert here.done("step") == 0
        runtime.answer(question.id, "deny")
        assert result(node) == "done"
    assert here.done("step") == 0


def dies_approved(world: World) -> None:
    boss, hooks = boss_of(world), {HOOK_PRE_TOOL_USE: [ask_first]}
    with world.runtime(boss, models=model_of(world), hooks=hooks) as runtime:
        node = runtime.invoke(boss)
        runtime.answer(question_of(runtime).id, "allow")
        result(node)


# Each is a number for the json module, or for the code that unpacks values; the text in beside it
# has the event read by them.
ENDLESS = ["NaN", "-Infinity", "1e999", '{"$":"float","v":"nan"}', '{"$":"float","v":"inf"}']
UNUSUAL = '{"$":"dict","v":[]}'


@pytest.mark.parametrize("number", ENDLESS)
@pytest.mark.parametrize("beside", [r'"\ud800"', UNUSUAL])
def test_a_deadline_in_the_file_that_never_comes_is_damage(
    here: World, file: Path, number: str, beside: str
):
    def forge_deadline(entry: dict[str, Any]) -> None:
        entry["body"] = f'{{"deadline":{number},"beside":{beside}}}'

    forge(file, "CallStarted", forge_deadline)
    tree = import_into(here, file)
    with attach(here.file) as observer, pytest.raises(StoreError, match="CallStarted: Expected"):
        observer.events(tree).read()


@pytest.mark.parametrize("number", ENDLESS)
@pytest.mark.parametrize("beside", [r'"\ud800"', UNUSUAL])
def test_a_timeout_in_the_file_that_never_ends_is_damage(
    here: World, file: Path, number: str, beside: str
):
    def forge_timeout(entry: dict[str, Any]) -> None:
        options = f'"options":{{"timeout":{number}}},"beside":{beside}'
        entry["body"] = entry["body"].removesuffix("}") + f",{options}}}"

    forge(file, "CallRequested", forge_timeout)
    tree = import_into(here, file)
    with attach(here.file) as observer, pytest.raises(StoreError, match="CallRequested: Expected"):
        observer.events(tree).read()


@pytest.mark.parametrize("field", ["expires", "deadline", "escalations"])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_question_in_the_file_that_never_expires_is_refused(
    there: World, here: World, lives: Lives, tmp_path: Path, field: str, number: float
):
    lives.killed(dies_asking, there)
    file = export_to(there, tmp_path / "run.jsonl")
    value: Any = [{"at": number, "to": "ann"}] if field == "escalations" else number

    forge(file, "QuestionAsked", lambda entry: entry["question"].update({field: value}))
    with pytest.raises(StoreError, match="it cannot be imported: it has invalid data"):
        import_into(here, file)
