"""Guarded runs on the workers of a cluster, and calls that the clients of an MCP server ask for."""

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

import warm_python
from cluster.conftest import Workers
from guards.guarded import (
    guarded_write,
    model_for,
    noted,
    options_of,
    plan,
    violations,
    write,
)
from guards.program import until_it_rests
from postgres_server import new_name, shared_url, with_query
from support import wait
from treefold import Runtime, attach
from treefold.agents.approval import ModelCallGate
from treefold.core.call_request import CallRequest
from treefold.core.decisions import RuleChain
from treefold.mcp import McpServer, McpToolError, serve
from work_engines import engine_name


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GUARDED", str(tmp_path))
    return tmp_path


@pytest.fixture(params=["procrastinate", "hostile"])
def placed(request: pytest.FixtureRequest) -> Iterator[Workers]:
    workers = Workers(with_query(shared_url(), schema=new_name()), engine_name(request.param))
    yield workers
    workers.close()


# Workers


@pytest.mark.slow
def test_a_worker_without_the_hook_of_a_run_leaves_it_to_one_that_asks(
    placed: Workers, folder: Path
):
    submitter = placed.submitter(plan, models=model_for("hook"), **options_of("hook"))
    id = submitter.invoke(plan).id
    submitter.flush()
    placed(plan, models=model_for("hook"))
    with attach(placed.url) as observer:
        wait(lambda: observer.get_view(id).held_back)
        placed(plan, models=model_for("hook"), **options_of("hook"))
        [question] = wait(observer.questions)
        assert noted(folder, "effects") == 0
        observer.answer(question.id, "allow")
        wait(lambda: observer.get_view(id).state.final)
    assert noted(folder, "effects") == 1


@pytest.mark.slow
def test_a_person_lifts_a_guard_that_no_worker_has(placed: Workers, folder: Path):
    submitter = placed.submitter(plan, models=model_for("hook"), **options_of("hook"))
    id = submitter.invoke(plan).id
    submitter.flush()
    placed(plan, models=model_for("hook"))
    with attach(placed.url) as observer:
        wait(lambda: observer.get_view(id).held_back)
        observer.resume(id, without=["guards.guarded:approve"])
        wait(lambda: observer.get_view(id).state.final)
    assert noted(folder, "effects") == 1


# The clients of an MCP server


async def called(runtime: Runtime, tool: str, answer: str | None = None) -> str:
    """Have a client call *tool*, and a person give an *answer* if asked; return what it gets."""
    token, ready = secrets.token_urlsafe(), asyncio.get_running_loop().create_future()
    served = [write, guarded_write, plan]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        serving = group.create_task(
            serve(served, runtime=runtime, http="0", token=token, on_ready=ready.set_result)
        )
        headers = {"Authorization": f"Bearer {token}"}
        async with McpServer(await ready, headers=headers) as client:
            args = {} if tool == "plan" else {"text": "!"}
            call = group.create_task(outcome(client, tool, args))
            if answer is not None:
                [question] = await asyncio.to_thread(wait, runtime.questions)
                await asyncio.to_thread(runtime.answer, question.id, answer)
            said = await call
        serving.cancel()
    return said


async def outcome(client: McpServer, tool: str, args: dict[str, str]) -> str:
    try:
        return str(await client.call(tool, args))
    except McpToolError as error:
        return str(error)


async def test_the_call_of_a_client_is_bound_by_its_function(folder: Path):
    async with Runtime([write, guarded_write, plan], store=folder / "run.db") as runtime:
        assert "not allowed: a person said no" in await called(runtime, "guarded_write", "deny")
        assert noted(folder, "effects") == 0
        assert await called(runtime, "guarded_write", "allow") == "written"
    assert noted(folder, "effects") == 1


async def test_the_call_of_a_client_is_bound_by_the_hooks_of_the_server(folder: Path):
    options = options_of("hook")
    async with Runtime([write, plan], store=folder / "run.db", **options) as runtime:
        assert "not allowed: a person said no" in await called(runtime, "write", "deny")
    assert noted(folder, "effects") == 0


@pytest.mark.parametrize("guard", ["allowed", "disallowed"])
async def test_the_call_of_a_client_is_bound_by_the_tools_of_the_server(folder: Path, guard: str):
    async with Runtime([write, plan], **options_of(guard)) as runtime:
        assert "write was not allowed" in await called(runtime, "write")
    assert noted(folder, "effects") == 0


async def test_the_call_of_a_client_is_bound_by_the_budget_of_the_server(folder: Path):
    async with Runtime([plan], models=model_for("budget"), **options_of("budget")) as runtime:
        assert "2 of 2 requests" in await called(runtime, "plan")
    assert violations(folder) == ""


@pytest.mark.parametrize("guard", ["function", "hook"])
def test_a_call_that_waited_for_approval_waits_for_it_in_the_next_process(folder: Path, guard: str):
    function = guarded_write if guard == "function" else write
    store, functions = folder / "run.db", [write, guarded_write, plan]
    runtime = Runtime(functions, store=store, **options_of(guard))
    gate = ModelCallGate(RuleChain([runtime.rules]))
    runtime.get_ctx().start(CallRequest(function, {"text": "!"}, gate=gate))
    wait(runtime.questions)
    runtime.close()
    with Runtime(functions, store=store) as runtime:
        until_it_rests(runtime)
        assert len(runtime.questions()) == 1
        assert noted(folder, "effects") == 0
        runtime.answer(runtime.questions()[0].id, "allow")
        until_it_rests(runtime)
    # Who has the hook goes on with what a person allowed; who lacks it does not.
    assert noted(folder, "effects") == (guard == "function")


@pytest.mark.slow
async def test_a_runtime_of_a_program_is_served_with_its_permissions(folder: Path):
    (folder / "app.py").write_text(
        "from treefold import Runtime\n"
        "from guards.guarded import write\n"
        "runtime = Runtime([write], disallowed_tools=['write'])\n"
    )
    command = warm_python.command("-m", "treefold", "mcp", "app.py:runtime")
    env = {"GUARDED": str(folder), "PYTHONPATH": str(Path(__file__).parent.parent)}
    async with McpServer(command, cwd=folder, env=env) as client:
        assert "write was not allowed" in await outcome(client, "write", {"text": "!"})
    assert noted(folder, "effects") == 0
