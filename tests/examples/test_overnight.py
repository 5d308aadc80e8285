"""``examples/overnight.py``, each start a process, some of which are killed."""

import asyncio
import os
import shutil
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import warm_python
from agent_scripts import until
from chat_helpers import User
from example_runs import EXAMPLES, Run, said
from treefold import NodeState, attach
from wire import ModelServer, openai_wire, stalled_after
from wire.openai_wire import MODEL

OVERNIGHT = str(EXAMPLES / "overnight.py")
NIGHT = ["ice", "lights", "polders", "ponds", "salt", "tides", "wheels"]
SENT = list(range(1, len(NIGHT) + 1))
LISTED = """\
Send these?
  ice: Before there were machines that make cold, people sold ice from lakes.
  lights: A lighthouse is a tower with a lamp that shows sailors at night where the coast is.
  polders: A polder is land that lies lower than the water around it.
  ponds: A tide mill has a dam across a creek, and a gate in the dam that opens inwards only.
  salt: Salt is made from sea water by the sun and the wind.
  tides: At most coasts the sea rises and falls twice in a little more than a day.
  wheels: The wheel of a tide mill stands below the dam, and turns when water runs from the pond \
past it into the sea."""
SUMMARISED = f"1 read_all success, {len(NIGHT)} summarise success"


@contextmanager
def started(folder: Path, *options: str) -> Generator[warm_python.Program]:
    with Path(os.devnull).open("r+b") as nowhere:
        none = nowhere.fileno()
        program = warm_python.start(OVERNIGHT, *options, files=(none, none, none), cwd=folder)
    try:
        yield program
    finally:
        program.kill()


async def start(folder: Path, *options: str) -> Run:
    done = await asyncio.to_thread(warm_python.run, OVERNIGHT, *options, cwd=folder)
    return Run(done.returncode, done.stdout, done.stderr)


def kill(program: warm_python.Program) -> None:
    program.kill()
    assert program.returncode == -signal.SIGKILL


def sent(folder: Path) -> list[str]:
    """Return the names of the texts whose summaries have been received."""
    lines = (folder / "outbox.txt").read_text("utf-8").splitlines()
    assert len({line.partition("\t")[0] for line in lines}) == len(lines)
    return [line.partition("\t")[2].partition(":")[0] for line in lines]


async def test_it_asks_once_sends_once_and_then_only_tells_what_came_of_it(tmp_path: Path):
    question = f"{LISTED} [yes, no]\n"
    paused = f"overnight.db has 'tonight', paused: {SUMMARISED}\n"
    done = f"overnight.db has 'tonight', success: {SUMMARISED}, {len(NIGHT)} send success\n"
    assert await start(tmp_path) == Run(0, f"overnight.db is new\n{question}")
    assert await start(tmp_path) == Run(0, f"{paused}{question}")
    assert await start(tmp_path, "--answer", "yes") == Run(0, f"yes: {LISTED}\n")
    assert not (tmp_path / "outbox.txt").exists()
    assert await start(tmp_path) == Run(0, f"{paused}sent: {SENT}\n")
    assert await start(tmp_path) == Run(0, f"{done}sent: {SENT}\n")
    assert sent(tmp_path) == NIGHT


async def test_nothing_is_sent_if_the_person_says_no(tmp_path: Path):
    await start(tmp_path)
    await start(tmp_path, "--answer", "no")
    assert (await start(tmp_path)).printed.endswith("sent: []\n")
    assert not (tmp_path / "outbox.txt").exists()


async def test_what_is_no_answer_is_exit_code_1_and_the_question_stays(tmp_path: Path):
    await start(tmp_path)
    assert await start(tmp_path, "--answer", "perhaps") == Run(
        1, "", "overnight: 'perhaps' does not answer the question: 'yes', 'no'\n"
    )
    assert (await start(tmp_path)).printed.endswith(f"{LISTED} [yes, no]\n")


async def test_a_job_that_is_killed_half_way_asks_for_no_summary_again(tmp_path: Path):
    stalls = stalled_after(openai_wire.text("nobody gets to read this"), 0)
    async with ModelServer([openai_wire.text("One."), stalls]) as server:
        model = ["--model", f"openai:{MODEL}@{server.url}/v1"]
        with started(tmp_path, *model) as program:
            await until(lambda: len(server.requests) == 2)
            kill(program)
        server.add(*(openai_wire.text(f"{name}.") for name in NIGHT[1:]))
        run = await start(tmp_path, *model)
    assert run == Run(
        0,
        "overnight.db has 'tonight', running: "
        "1 read_all success, 1 summarise success, 1 summarise running\n"
        "Send these?\n  ice: One.\n"
        + "\n".join(f"  {name}: {name}." for name in NIGHT[1:])
        + " [yes, no]\n",
    )
    prompts = [part for request in server.requests for part in said(request)]
    asked = [part.text.split()[1] for part in prompts if isinstance(part, User)]
    assert asked == ["ice", "lights", *NIGHT[1:]]


@pytest.fixture
async def killed_while_sending(tmp_path: Path) -> Path:
    """The folder of a job that was killed when nobody knew whether the first was sent."""
    folder = tmp_path / "killed"
    folder.mkdir()
    await start(folder)
    await start(folder, "--answer", "yes")
    os.mkfifo(folder / "outbox.txt")  # who opens it to read waits for somebody who writes
    with started(folder) as program:
        with attach(folder / "overnight.db") as observer:

            def is_sending() -> bool:
                calls = observer.get_view(1).children
                return calls[-1].fn == "send" and calls[-1].state is NodeState.Running

            await until(is_sending)
        kill(program)
    (folder / "outbox.txt").unlink()
    return folder


async def test_what_may_have_been_sent_is_sent_again_only_when_somebody_says_so(
    killed_while_sending: Path,
):
    folder = killed_while_sending
    run = await start(folder)
    first, question = run.printed.splitlines()
    assert first == f"overnight.db has 'tonight', running: {SUMMARISED}, 1 send running"
    assert question.startswith("send(name='ice', ")
    assert question.endswith(" [retry, use, fail]")
    assert not (folder / "outbox.txt").exists()

    assert (await start(folder, "--answer", "retry")).code == 0
    assert (await start(folder)).printed.endswith(f"sent: {SENT}\n")
    assert sent(folder) == NIGHT


async def test_what_had_been_sent_is_not_received_twice(killed_while_sending: Path):
    folder = killed_while_sending
    await start(folder)
    await start(folder, "--answer", "retry")
    other = shutil.copytree(folder, folder.with_name("other"))  # the same journal, the same keys
    await start(other)
    first, *_ = (other / "outbox.txt").read_text("utf-8").splitlines(keepends=True)
    (folder / "outbox.txt").write_text(first, "utf-8")  # as if it had come before the kill
    assert (await start(folder)).printed.endswith(f"sent: {SENT}\n")
    assert sent(folder) == NIGHT


async def test_another_night_is_another_job(tmp_path: Path):
    await start(tmp_path)
    run = await start(tmp_path, "--night", "tomorrow")
    assert run.code == 0
    with attach(tmp_path / "overnight.db") as observer:
        assert [(tree.key, tree.parked) for tree in observer.trees()] == [
            ("tonight", True),
            ("tomorrow", True),
        ]


async def test_a_folder_without_texts_is_a_fault_of_the_command_line(tmp_path: Path):
    run = await start(tmp_path, "--folder", str(tmp_path))
    assert run.code == 2
    assert "there is no .txt file in " in run.complaints
