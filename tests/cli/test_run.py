"""``treefold run``, as a person uses it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import warm_python
from journal_driver import asked
from support import heed_interrupts
from terminal import Terminal
from treefold import NodeState, NodeView, SqliteStore, attach
from treefold.stores import TreeRow

ROOT = Path(__file__).parent.parent.parent
SLOW = """
import asyncio
from treefold import RunContext, tool

@tool
async def nap() -> None:
    print("asleep", flush=True)
    await asyncio.sleep(60)

@tool(uses=[nap])
async def slow(ctx: RunContext) -> None:
    await ctx.invoke(nap)
"""


def treefold(*args: str) -> subprocess.CompletedProcess[str]:
    return warm_python.run("-m", "treefold", *args, cwd=ROOT)


def test_the_example_of_the_help_runs():
    shown = treefold("run", "--help").stdout
    (example,) = [line for line in shown.splitlines() if line.startswith("example: treefold ")]
    done = treefold(*example.removeprefix("example: treefold ").split())
    assert done.returncode == 0
    assert "the longest is src/treefold/core/" in done.stdout
    first, *rest = done.stderr.splitlines()
    assert first.startswith("✓ 1 survey(folder='src/treefold/core')")
    beginning = r"├─ ✓ 1\.1 ∥1/[0-9]+ measure\(path='src/treefold/core/__init__\.py'\)"
    assert re.match(beginning, rest[0])


def test_values_are_read_as_json_or_as_text(tmp_path: Path):
    module = tmp_path / "job.py"
    module.write_text(
        "from treefold import tool\n"
        "@tool\n"
        "async def show(a: int, b: list[str], c: str) -> str:\n"
        "    return repr((a, b, c))\n"
    )
    done = treefold("run", f"{module}:show", "--arg", "a=3", "--arg", 'b=["x"]', "--arg", "c=x=y")
    assert (done.returncode, done.stdout) == (0, "(3, ['x'], 'x=y')\n")


def test_text_that_is_read_as_json_is_said_to_need_quotes(tmp_path: Path):
    module = tmp_path / "job.py"
    module.write_text(
        "from treefold import tool\n@tool\nasync def show(folder: str) -> str:\n    return folder\n"
    )
    done = treefold("run", f"{module}:show", "--arg", "folder=3")
    assert done.returncode == 2
    assert done.stderr.endswith("""(got 3); as text it is --arg 'folder="3"'\n""")
    assert treefold("run", f"{module}:show", "--arg", 'folder="3"').stdout == "3\n"


def test_one_call_that_was_under_way_is_said_in_the_singular(tmp_path: Path):
    module, store = tmp_path / "job.py", tmp_path / "run.db"
    module.write_text(SLOW.replace("@tool\nasync def nap", "@tool(repeatable=True)\nasync def nap"))
    command = warm_python.command("-m", "treefold", "run", f"{module}:slow", "--store", str(store))
    told = ""
    for goes_on in (False, True):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "asleep\n"
            told = process.stderr.readline() if goes_on else ""
            process.kill()
            process.communicate(timeout=60)
    assert "(run 1): 0 of its calls are done, 1 was running" in told


def test_a_call_that_raises_is_exit_code_1_and_says_so():
    done = treefold("run", "examples/survey.py:survey", "--arg", "folder=nowhere")
    assert done.returncode == 1
    assert "treefold run: FileNotFoundError: there is no Python file below nowhere" in done.stderr
    (place,) = [line for line in done.stderr.splitlines() if " in survey" in line]
    assert place.startswith("  ")
    assert "examples/survey.py:" in place


def test_what_cannot_be_called_is_exit_code_2_and_says_what_can():
    for target, words in [
        ("examples/survey.py:nothing", "it has measure, note, name_longest, survey"),
        ("examples/survey.py:Path", "needs a Function, which <class 'pathlib"),
        ("examples/survey.py", "is not MODULE:FUNCTION"),
        ("nowhere.py:f", "there is no file nowhere.py"),
        ("no_such_module:f", "No module named 'no_such_module'"),
    ]:
        done = treefold("run", target)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    done = treefold("run", "examples/survey.py:survey", "--arg", "folder")
    assert (done.returncode, "is not NAME=VALUE" in done.stderr) == (2, True)


def test_a_module_that_cannot_be_imported_is_exit_code_2(tmp_path: Path):
    for name, text in [("a", "1 / 0"), ("b", "def f(:"), ("c", "raise SystemExit(0)")]:
        module = tmp_path / f"{name}.py"
        module.write_text(text)
        done = treefold("run", f"{module}:f")
        assert (done.returncode, "cannot be imported" in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr


def test_a_file_may_have_the_name_of_a_module_and_import_its_neighbours(tmp_path: Path):
    (tmp_path / "neighbour.py").write_text("LINES = 'one\\ntwo\\x1b'")
    (tmp_path / "types.py").write_text(
        "from neighbour import LINES\n"
        "from treefold import tool\n"
        "@tool\n"
        "async def show() -> str:\n"
        "    return LINES\n"
    )
    done = treefold("run", f"{tmp_path}/types.py:show")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\\x1b\n")


def test_a_terminal_without_unicode_is_no_reason_to_fail():
    target = ("examples/survey.py:survey", "--arg", "folder=src/treefold/core")
    command = warm_python.command("-m", "treefold", "run", *target)
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0
    assert b"\\u2713 1 survey" in done.stderr


def test_without_a_command_it_says_how_to_use_it():
    done = treefold()
    assert done.returncode == 2
    assert "Usage: treefold" in done.stderr
    assert treefold("--version").stdout.startswith("treefold 0.")


def test_an_interrupt_cancels_the_tree_and_shows_it(tmp_path: Path):
    module = tmp_path / "job.py"
    module.write_text(SLOW)
    process = subprocess.Popen(
        warm_python.command("-m", "treefold", "run", f"{module}:slow"),
        env=os.environ | {"COLUMNS": "200"},
        preexec_fn=heed_interrupts,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "asleep\n"
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "⊘ 1 slow() → CancellationException: slow (run 1) was cancelled: interrupted" in shown
    assert "⊘ 1.1 nap()" in shown


def test_a_run_that_is_terminated_closes_its_journal(tmp_path: Path):
    module, journal = tmp_path / "job.py", tmp_path / "run.db"
    module.write_text(SLOW)
    process = subprocess.Popen(
        warm_python.command("-m", "treefold", "run", f"{module}:slow", "--store", str(journal)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "asleep\n"
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "treefold run: terminated; the same command resumes it" in said
    with SqliteStore(journal) as store:
        assert not store.join()  # the last driver was not killed
        assert [tree.open for tree in store.trees()] == [True]


async def test_on_a_terminal_the_tree_is_drawn_while_it_grows(tmp_path: Path):
    module = tmp_path / "job.py"
    module.write_text(SLOW.replace("sleep(60)", "sleep(1)"))
    async with Terminal("-m", "treefold", "run", f"{module}:slow", env={}) as terminal:
        await terminal.see_on_screen("● 1 slow()", "└─ ● 1.1 nap()", "✓ 0 of 2 done  ● 1 running")
        await terminal.see_on_screen("✓ 1 slow()", "└─ ✓ 1.1 nap()", "✓ 2 of 2 done")
        assert await terminal.exit_code() == 0
    assert sum("nap()" in line for line in terminal.screen) == 1  # drawn in place


ASKING = """
from treefold import ToolUse, agent, tool
from treefold.testing import ScriptedModel
from treefold.toolbox import human_in_loop, raise_exception

choose = ToolUse("1", "human_in_loop", {"question": "Red\\x1b[2J or blue?", "choices": ["r", "b"]})
give_up = ToolUse("1", "raise_exception", {"msg": "no paint"})

@agent(uses=[human_in_loop], model=ScriptedModel(choose, "painted"))
def paint(what: str) -> str:
    return f"Paint the {what}."

@agent(uses=[raise_exception], model=ScriptedModel(give_up))
def fail(what: str) -> str:
    return f"Paint the {what}."
"""


def run_asking(tmp_path: Path, name: str, said: str) -> subprocess.CompletedProcess[str]:
    module = tmp_path / "asking.py"
    module.write_text(ASKING)
    command = warm_python.command("-m", "treefold", "run", f"{module}:{name}", "--arg", "what=door")
    env = os.environ | {"COLUMNS": "80"}  # readline may set it, or another test have removed it
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, input=said
    )


def test_questions_are_put_to_the_user_until_the_answer_fits(tmp_path: Path):
    done = run_asking(tmp_path, "paint", "green\nb\n")
    assert (done.returncode, done.stdout) == (0, "painted\n")
    assert (
        "? 1.1 human_in_loop(question='Red\\x1b[2J or blue?', choices=['r', 'b'])\n"
        "  called by 1 paint(what='door')\n  Red\\x1b[2J or blue? [r / b]\n"
    ) in done.stderr
    assert "'green' does not answer the question: 'r', 'b'" in done.stderr
    assert "human_in_loop(" in done.stderr


def test_a_question_at_the_end_of_the_input_ends_the_run(tmp_path: Path):
    done = run_asking(tmp_path, "paint", "")
    assert done.returncode == 1
    assert "nobody was there to answer its question" in done.stderr


ASKING_TWICE = """
from treefold import RunContext, tool

@tool
async def ask(ctx: RunContext) -> str:
    return await ctx.ask("First?") + await ctx.ask("Second?")
"""


def answer_beside(store: Path) -> None:
    (question,) = asked(store)
    with attach(store) as observer:
        observer.answer(question, "a")


ASKING_BESIDE = """
import asyncio
from treefold import RunContext, tool

@tool
async def count(ctx: RunContext) -> int:
    await asyncio.sleep(0.2)
    return 1

@tool
async def ask(ctx: RunContext) -> str:
    return await ctx.ask("Ready?")

@tool(uses=[count, ask])
async def both(ctx: RunContext) -> str:
    asking = ctx.invoke(ask)
    for _ in range(3):
        await ctx.invoke(count)
    return await asking
"""


async def test_the_tree_keeps_moving_while_a_question_waits(tmp_path: Path):
    module = tmp_path / "job.py"
    module.write_text(ASKING_BESIDE)
    async with Terminal("-m", "treefold", "run", f"{module}:both", env={}) as terminal:
        await terminal.see_on_screen("? 1.1 ask(), called by 1 both()\n  Ready?\n>")
        terminal.press("y" * 150)  # wider than the terminal
        await terminal.see_on_screen("✓ 3 of 5 done", "  Ready?\n> yyy")
        assert [line[:3] for line in terminal.screen[-3:]] == ["? 1", "  R", "> y"]
        assert sum(line.startswith("● 1 both()") for line in terminal.screen) == 1
        terminal.press("\n")
        assert await terminal.exit_code() == 0
        assert ("y" * 150) in "".join(terminal.screen)


async def test_the_tree_keeps_moving_above_a_question_that_moves_half_of_it_off_the_screen(
    tmp_path: Path,
):
    module = tmp_path / "job.py"
    long = "\\n".join(f"line {number}" for number in range(1, 36))
    module.write_text(ASKING_BESIDE.replace("Ready?", f"{long}\\nReady?"))
    async with Terminal("-m", "treefold", "run", f"{module}:both", env={}) as terminal:
        await terminal.see_on_screen("✓ 3 of 5 done", "  Ready?\n>")
        assert terminal.screen[-1] == ">"
        terminal.press("yes\n")
        assert await terminal.exit_code() == 0


async def test_a_question_that_is_answered_elsewhere_is_not_waited_for_at_the_terminal(
    tmp_path: Path,
):
    module, store = tmp_path / "job.py", tmp_path / "run.db"
    module.write_text(ASKING_TWICE)
    args = ("-m", "treefold", "run", f"{module}:ask", "--store", str(store))
    async with Terminal(*args, env={}) as terminal:
        await terminal.see("? 1 ask()\n  First?\n> ")
        terminal.press("be")
        await asyncio.to_thread(answer_beside, store)
        await terminal.see("(no longer open: it was answered elsewhere, or cancelled)")
        await terminal.see("? 1 ask()\n  Second?\n> ")
        terminal.press("gun\n")
        assert await terminal.exit_code() == 0
        await terminal.see("abegun\n")


def test_a_question_that_is_answered_elsewhere_is_not_waited_for_at_a_pipe(tmp_path: Path):
    module, store = tmp_path / "job.py", tmp_path / "run.db"
    module.write_text(ASKING_TWICE)
    command = warm_python.command("-m", "treefold", "run", f"{module}:ask", "--store", str(store))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "? 1 ask()\n"
        assert process.stderr.readline() == "  First?\n"
        answer_beside(store)
        assert process.stderr.readline() == "> \n"
        said = "(no longer open: it was answered elsewhere, or cancelled)\n"
        assert process.stderr.readline() == said
        shown, _ = process.communicate("b\nnobody reads this\n", timeout=60)
    assert (process.returncode, shown) == (0, "ab\n")


def test_an_agent_that_gives_up_shows_its_agent_traceback(tmp_path: Path):
    done = run_asking(tmp_path, "fail", "")
    assert done.returncode == 1
    assert "treefold run: AgentException: no paint\nAgent traceback" in done.stderr
    assert "fail (agent, run 1) what='door' | scripted, response 1, part 2" in done.stderr


def test_a_model_that_does_not_exist_is_a_sentence(tmp_path: Path):
    module = tmp_path / "job.py"
    module.write_text("from treefold import agent\n@agent\ndef go() -> str:\n    return 'go'\n")
    done = treefold("run", f"{module}:go", "--model", "clod:x")
    assert done.returncode == 2
    assert "no provider is called 'clod'" in done.stderr


def test_a_model_that_a_program_makes_is_named_by_its_file(tmp_path: Path):
    module, store = tmp_path / "job.py", tmp_path / "run.db"
    module.write_text(
        "from treefold import agent\n"
        "from treefold.testing import ScriptedModel\n"
        "@agent\n"
        "def greet() -> str:\n"
        "    return 'Greet.'\n"
        "own = ScriptedModel('Hello!', name='acme:large')\n"
        "replies = ['Hello!']\n"
    )
    run = ["run", f"{module}:greet", "--store", str(store), "--model"]
    done = treefold(*run, f"{module}:own")
    assert (done.returncode, done.stdout) == (0, "Hello!\n")
    with attach(store) as observer:
        assert observer.get_view(1).model == "acme:large"
    done = treefold(*run, f"{module}:replies")
    assert done.returncode == 2
    assert f"scripted:{module}:replies" in done.stderr


def test_a_killed_run_resumes_when_it_is_started_again(tmp_path: Path):
    store = tmp_path / "run.db"
    args = [
        "run",
        "examples/survey.py:survey",
        "--arg",
        "folder=src/treefold",
        "--store",
        str(store),
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "treefold", *args], cwd=ROOT, stderr=subprocess.PIPE
    ) as process:
        end = time.monotonic() + 60
        while sum(node.state.final for node in calls_in(store)) < 10:
            assert time.monotonic() < end, "it never got that far"
            assert process.poll() is None, "it was over before it could be killed"
            time.sleep(0.005)
        process.kill()
    before = [node for node in calls_in(store) if node.state.final]
    again = treefold(*args)
    assert again.returncode == 0, again.stderr
    assert f"(run 1): {len(before)} of its calls are done," in again.stderr
    assert "==> resuming this run" in again.stderr
    assert "; the longest is " in again.stdout
    after = {node.id: node for node in calls_in(store)}
    assert [after[node.id].ended_at for node in before] == [node.ended_at for node in before]
    (tree,) = trees_in(store)
    assert tree.state is NodeState.Success


def trees_in(store: Path) -> list[TreeRow]:
    if not store.exists():
        return []
    with attach(store) as observer:
        return observer.trees()


def calls_in(store: Path) -> tuple[NodeView, ...]:
    if not trees_in(store):
        return ()
    with attach(store) as observer:
        return observer.get_view(1).children


LOUD = """
from treefold import CodeFunction, RunContext

async def fail(ctx: RunContext) -> None:
    raise ValueError("\\x1b[31mred\\x1b[2J")

failing = CodeFunction(callable=fail)

async def top(ctx: RunContext) -> str:
    ctx.invoke(failing)
    return "done"

topping = CodeFunction(callable=top, uses=[failing])
"""


def test_what_is_logged_cannot_act_on_the_terminal(tmp_path: Path):
    module = tmp_path / "loud.py"
    module.write_text(LOUD)
    command = warm_python.command("-m", "treefold", "run", f"{module}:topping")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "nobody asked for its result: ValueError: \\x1b[31mred\\x1b[2J" in done.stderr
    assert "\x1b" not in done.stderr
