"""Programs that end, or change loops, in the middle of things; each in a process of its own."""

import subprocess
import sys

import pytest

START = """
import asyncio, logging, threading
from contextlib import aclosing
from treefold import Agent, StopReason, Turn, TurnTimeoutError, tool

logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns if the machine is slow
ended = []

@tool(lock=True)
async def count():
    number = 0
    try:
        while True:
            yield number
            number += 1
            await asyncio.sleep(0)
    finally:
        await asyncio.sleep(0)
        ended.append("tool")

@tool
async def stuck():
    try:
        yield 0
        await asyncio.Event().wait()
    finally:
        ended.append("tool")
"""


def run(program: str) -> tuple[str, str]:
    """Run *program* with every warning an error; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", START + program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("name", ["count", "stuck"])
def test_a_program_may_end_right_after_breaking_off_a_turn(name: str) -> None:
    program = f"""
turn = Turn({name})
async def main():
    async for value in turn.yielding():
        break
asyncio.run(main())
print(ended, turn.stop_reason.name)
"""
    assert run(program) == ("['tool'] CANCELLED\n", "")


@pytest.mark.parametrize("name", ["count", "stuck"])
def test_a_program_may_end_right_after_breaking_off_an_agent(name: str) -> None:
    program = f"""
turn = Turn({name})
agent = Agent("clerk", "", [{name}])
async def main():
    await agent.put(turn)
    async for pair in agent.run():
        break
asyncio.run(main())
print(ended, turn.stop_reason.name, list(agent.turns) == [turn])
"""
    assert run(program) == ("['tool'] CANCELLED True\n", "")


def test_after_invoke_gets_the_partial_list_if_the_loop_ends_right_after_an_early_break() -> None:
    program = """
heard = []

@count.after_invoke
async def hear(result):
    heard.append(result)
    await asyncio.sleep(0)
    heard.append("heard")

agent = Agent("clerk", "", [count])

async def break_off(stream):
    async for value in stream:
        if heard or value in {1, (turn, 1)}:
            break

async def run_agent():
    await agent.put(turn)
    async for turn_and_value in agent.run():
        if turn_and_value[1] == 1:
            break

for make in (lambda: break_off(count()), lambda: break_off(turn.yielding()), run_agent):
    turn = Turn(count)
    asyncio.run(make())
    print(heard, ended)
    heard.clear()
    ended.clear()

async def hold():
    global held
    held = count()
    await break_off(held)

async def drop_in_a_cycle():
    stream = count()
    await break_off(stream)
    cycle = [stream]
    cycle.append(cycle)

for main in (hold, drop_in_a_cycle):
    asyncio.run(main())
    print(heard, ended)
    heard.clear()
    ended.clear()
"""
    assert run(program) == ("[[0, 1], 'heard'] ['tool']\n" * 5, "")


@pytest.mark.parametrize("name", ["count", "stuck"])
def test_a_turn_abandoned_in_one_loop_can_be_run_in_another(name: str) -> None:
    program = f"""
turn = Turn({name})
async def main():
    async for value in turn.yielding():
        return value
print(asyncio.run(main()), asyncio.run(main()), ended)
"""
    assert run(program) == ("0 0 ['tool', 'tool']\n", "")


@pytest.mark.parametrize("name", ["count", "stuck"])
def test_a_stream_that_timed_out_leaves_nothing_behind(name: str) -> None:
    program = f"""
turn = Turn({name}, timeout=0.01)
async def main():
    try:
        async for value in turn.yielding():
            pass
    except TurnTimeoutError:
        print(len(asyncio.all_tasks()), ended, turn.stop_reason.name)
asyncio.run(main())
"""
    assert run(program) == ("1 ['tool'] TIMEOUT\n", "")


def test_an_agent_can_be_run_in_one_loop_after_another() -> None:
    program = """
@tool
async def say(word):
    return word

agent = Agent("clerk", "", [say])
async def main(word):
    await agent.put(Turn(say, args=[word]))
    return [value async for _, value in agent.run()]
print(asyncio.run(main("a")), asyncio.run(main("b")))
"""
    assert run(program) == ("['a'] ['b']\n", "")


def test_a_locked_tool_is_serialized_across_threads_and_loops() -> None:
    program = """
inside = most = calls = 0

@tool(lock=True)
async def work():
    global inside, most, calls
    inside += 1
    most = max(most, inside)
    await asyncio.sleep(0.001)
    inside -= 1
    calls += 1

async def main():
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(work())

threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(most, calls)
"""
    assert run(program) == ("1 20\n", "")


def test_a_turn_cancelled_by_the_end_of_its_program_records_that() -> None:
    program = """
@tool
async def wait():
    entered.set()
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("tool")

turn = Turn(wait)
async def main():
    global entered, task
    entered = asyncio.Event()
    task = asyncio.create_task(turn.returning())
    await entered.wait()
asyncio.run(main())
print(ended, turn.stop_reason.name, task.cancelled())
"""
    assert run(program) == ("['tool'] CANCELLED True\n", "")
