"""Nothing that a command started outlives its timeout, its cancel or its tree."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import processes_in
from treefold import CancellationException, Node, RunContext, Runtime, tool
from treefold.core.errors import CallTimeoutError
from treefold.toolbox import Bash, bash

GRANDCHILDREN = (
    "sleep 301 & (sleep 302; true) & (setsid sleep 303 &) ; nohup sleep 304 >/dev/null &"
    "env -i setsid sleep 305 &"
)


async def gone(mark: Path) -> None:
    async with asyncio.timeout(60):
        while processes_in(mark):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)


async def ended(pid: int) -> None:
    async with asyncio.timeout(60):
        while str(pid) in os.listdir("/proc"):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)


async def until(mark: Path, command: str) -> None:
    async with asyncio.timeout(60):
        while command not in processes_in(mark):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)


async def test_a_command_that_takes_too_long_is_stopped_and_the_shell_is_left(tmp_path: Path):
    mine = Bash(cwd=tmp_path, timeout=0.5)

    @tool(uses=[mine])
    async def caller(ctx: RunContext) -> str:
        await ctx.invoke(mine, {"command": "x=kept; sleep 300 & true"})
        with pytest.raises(CallTimeoutError) as caught:
            await ctx.invoke(mine, {"command": "echo before; sleep 310 & sleep 311; sleep 312"})
        message = str(caught.value)
        assert "took longer than 0.5 s and was stopped, with all that it started" in message
        assert "the shell is still there" in message
        assert "It had printed:\n" in message
        assert "before" in message
        assert [line for line in processes_in(tmp_path) if "sleep" in line] == ["sleep 300"]
        return await ctx.invoke(mine, {"command": "echo $x; jobs -r | grep -c 'sleep 300'"})

    async with Runtime() as runtime:
        assert await runtime.invoke(caller, timeout=30) == "kept\n1"
    await gone(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "while :; do :; done",
        "while :; do sleep 1; done",
        "yes",
        "(trap '' INT TERM; while :; do sleep 1; done); sleep 300",
        "sleep 300 | sleep 300",
        "timeout 300 sleep 300",
        "wait; mkfifo f; read x < f",
        "trap '' INT; while :; do sleep 1; done",
        "setsid sleep 300",
        "exec sleep 300",
        "builtin() { sleep 300; }; sleep 300",
    ],
)
async def test_whatever_hangs_is_stopped_and_the_next_command_runs(command: str, tmp_path: Path):
    mine = Bash(cwd=tmp_path)

    @tool(uses=[mine])
    async def caller(ctx: RunContext) -> str:
        with pytest.raises(CallTimeoutError, match="was stopped"):
            await ctx.invoke(mine, {"command": command, "timeout": 0.3})
        assert not [line for line in processes_in(tmp_path) if "bash" not in line]
        told = await ctx.invoke(mine, {"command": "unset -f builtin; echo next", "timeout": 5})
        return told.splitlines()[-1]

    async with Runtime() as runtime:
        assert await runtime.invoke(caller, timeout=30) == "next"
    await gone(tmp_path)


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """A shell that is born with SIGINT ignored, as in the background, cannot trap it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_interrupts")
async def test_a_shell_that_had_to_be_killed_is_replaced_in_words():
    @tool(uses=[bash])
    async def caller(ctx: RunContext) -> str:
        with pytest.raises(CallTimeoutError, match="the shell had to be killed"):
            await ctx.invoke(bash, {"command": "trap '' INT; while :; do :; done", "timeout": 1})
        return await ctx.invoke(bash, {"command": "echo on"})

    async with Runtime() as runtime:
        assert re.fullmatch(
            r"\[this is a new shell, .*: the last command did not stop in time\]\non",
            await runtime.invoke(caller, timeout=30),
        )


@pytest.mark.parametrize("command", ["sleep 300", "trap '' INT TERM; sleep 300; sleep 300"])
async def test_cancelling_the_tree_ends_a_running_command_before_it_ends_itself(
    command: str, tmp_path: Path
):
    mine = Bash(cwd=tmp_path)

    @tool(uses=[mine])
    async def caller(ctx: RunContext) -> None:
        await ctx.invoke(mine, {"command": command})

    async with Runtime() as runtime:
        node = runtime.invoke(caller)
        await until(tmp_path, "sleep 300")
        node.cancel("enough")
        with pytest.raises(CancellationException, match="enough"):
            await node
        assert not [line for line in processes_in(tmp_path) if "sleep" in line]
    await gone(tmp_path)


async def test_a_caller_goes_on_with_the_same_shell_after_a_cancelled_command(tmp_path: Path):
    mine = Bash(cwd=tmp_path)

    @tool(uses=[mine])
    async def caller(ctx: RunContext) -> str:
        await ctx.invoke(mine, {"command": "x=kept"})
        with pytest.raises(CallTimeoutError):
            await ctx.invoke(mine, {"command": "sleep 300; sleep 300"}, timeout=0.3)
        return await ctx.invoke(mine, {"command": "echo $x"})

    async with Runtime() as runtime:
        assert await runtime.invoke(caller, timeout=30) == "kept"
    await gone(tmp_path)


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_stopped_command_takes_along_what_hides_from_its_session(how: str, tmp_path: Path):
    mine = Bash(cwd=tmp_path)

    @tool(uses=[mine])
    async def caller(ctx: RunContext) -> str:
        await ctx.invoke(mine, {"command": "x=kept; env -i setsid sleep 300 & true"})
        node = ctx.invoke(
            mine,
            {
                "command": "(env -i setsid sleep 301 &) ; env -i setsid sleep 302",
                "timeout": 0.3 if how == "timeout" else 60,
            },
        )
        if how == "cancel":
            await until(tmp_path, "sleep 301")
            await until(tmp_path, "sleep 302")
            node.cancel("enough")
        with pytest.raises((CallTimeoutError, CancellationException)):
            await node
        assert [line for line in processes_in(tmp_path) if "sleep" in line] == ["sleep 300"]
        return await ctx.invoke(mine, {"command": "echo $x"})

    async with Runtime() as runtime:
        assert await runtime.invoke(caller, timeout=30) == "kept"
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize(
    "stop", ["", "kill -STOP $PPID;"], ids=["", "after a command stopped the supervisor"]
)
def test_nothing_of_a_shell_outlives_a_program_that_is_killed(stop: str, tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(
        "from treefold import Runtime\n"
        "from treefold.toolbox import bash\n"
        f"runtime = Runtime()\n"
        f"command = {f'{GRANDCHILDREN} {stop} echo $PPID'!r}\n"
        "print(runtime.invoke(bash, {'command': command}).result(), flush=True)\n"
        "input()\n"
    )
    folder = tmp_path / "work"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, program], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        supervisor = int(started.stdout.readline())
        assert len(processes_in(folder)) > 5
        started.kill()
    asyncio.run(gone(folder))
    asyncio.run(ended(supervisor))


@pytest.mark.parametrize(
    "stop",
    [
        "kill -STOP $PPID",
        "kill -STOP $PPID; exit",
        "while :; do kill -STOP $PPID; done & true",
        'env -i setsid bash -c "while :; do kill -STOP $PPID; done" & true',
    ],
)
async def test_a_supervisor_that_a_command_stopped_ends_with_its_runtime(stop: str, tmp_path: Path):
    mine = Bash(cwd=tmp_path, timeout=2)
    async with Runtime() as runtime:
        node = runtime.invoke(mine, {"command": f"echo $PPID; {GRANDCHILDREN} {stop}"})
        try:
            told = await node
        except CallTimeoutError as error:
            told = str(error)
    assert processes_in(tmp_path) == []
    await ended(int(re.findall(r"^\d+$", told, re.MULTILINE)[0]))


@pytest.mark.parametrize("executable", ["", "/opt/some-program"])
async def test_a_program_that_is_no_python_has_shells_too(
    executable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.delattr(os, "pidfd_open")  # as on macOS
    mine = Bash(cwd=tmp_path)

    @tool(uses=[mine])
    async def caller(ctx: RunContext) -> str:
        await ctx.invoke(mine, {"command": "x=kept; sleep 300 & (setsid sleep 301 &)"})
        with pytest.raises(CallTimeoutError, match="the shell is still there"):
            await ctx.invoke(mine, {"command": "sleep 302", "timeout": 0.3})
        return await ctx.invoke(mine, {"command": "echo $x"})

    async with Runtime() as runtime:
        assert await runtime.invoke(caller, timeout=30) == "kept"
    assert processes_in(tmp_path) == []


async def test_a_command_that_kills_all_it_can_name_ends_the_shell_and_nothing_is_left(
    tmp_path: Path,
):
    mine = Bash(cwd=tmp_path)
    background = "sleep 300 & (setsid sleep 301 &) ;"
    told = await _twice(
        mine, f"{background} grep supervisor /proc/$PPID/cmdline && kill -9 $PPID; sleep 302"
    )
    assert "[the shell has ended (killed by SIGKILL)" in told[0]
    assert told[1].endswith("\non")
    assert processes_in(tmp_path) == []


async def _twice(mine: Bash, command: str) -> list[str]:
    @tool(uses=[mine])
    async def caller(ctx: RunContext) -> list[str]:
        return [
            await ctx.invoke(mine, {"command": command}),
            await ctx.invoke(mine, {"command": "echo on"}),
        ]

    async with Runtime() as runtime:
        return await runtime.invoke(caller, timeout=30)


async def test_a_stopped_command_leaves_alone_what_an_earlier_job_starts_meanwhile(tmp_path: Path):
    mine = Bash(cwd=tmp_path)
    job = "(until [ -e go ]; do sleep 0.01; done; env sleep 306; true) & true"

    @tool(uses=[mine])
    async def caller(ctx: RunContext) -> None:
        await ctx.invoke(mine, {"command": job})
        with pytest.raises(CallTimeoutError):
            await ctx.invoke(mine, {"command": "touch go; sleep 300", "timeout": 1})
        await until(tmp_path, "sleep 306")

    async with Runtime() as runtime:
        await runtime.invoke(caller, timeout=60)
    assert processes_in(tmp_path) == []


async def test_a_finished_tree_keeps_its_shell_until_it_is_deleted(tmp_path: Path):
    async with Runtime() as runtime:
        node = runtime.invoke(Bash(cwd=tmp_path), {"command": GRANDCHILDREN})
        await node
        for n in range(301, 306):
            await until(tmp_path, f"sleep {n}")
        runtime.delete(node.id)
        await gone(tmp_path)


@pytest.mark.parametrize("ending", ["exit", "kill -9 $$"])
async def test_background_jobs_end_with_their_shell(ending: str, tmp_path: Path):
    async with Runtime() as runtime:
        await runtime.invoke(Bash(cwd=tmp_path), {"command": f"{GRANDCHILDREN} {ending}"})
        assert processes_in(tmp_path) == []


def test_closing_a_runtime_from_another_thread_kills_and_reaps_all(tmp_path: Path):
    with Runtime() as runtime:
        mine = Bash(cwd=tmp_path)
        told: Node = runtime.invoke(mine, {"command": f"{GRANDCHILDREN} echo shell=$$"})
        pid = int(re.findall(r"shell=(\d+)", told.result(60))[0])
        assert processes_in(tmp_path)
    assert processes_in(tmp_path) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)  # not even a zombie


async def test_no_file_descriptors_are_left_open():
    async def once() -> None:
        async with Runtime() as runtime:
            await runtime.invoke(bash, {"command": "sleep 300 & exit"})
            await runtime.invoke(bash, {"command": "true"})

    await once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await once()
    assert len(os.listdir("/proc/self/fd")) <= before
