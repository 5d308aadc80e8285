"""Scoped names, `doc_tree()`, and looking tools up."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module, reload
from pathlib import Path
from typing import Any, cast
from weakref import ReferenceType, ref

import pytest

from treefold import (
    Agent,
    AgentRegistry,
    HookRegistry,
    Tool,
    ToolHook,
    ToolRegistry,
    Turn,
    UnregisteredAgentError,
    UnregisteredToolError,
    hook,
    registries,
    tool,
)


def users() -> Tool[Any, Any]:
    """Define the example of the document."""

    @tool()
    async def manage_users() -> None:
        """Top-level user management tool."""

    @manage_users.subtool()
    async def create_user(username: str) -> str:
        """Create a new user."""
        return f"created {username}"

    @manage_users.subtool(lock=True)
    async def delete_user(username: str) -> None:
        """Delete an existing user."""

    return manage_users


def test_a_subtool_is_registered_under_its_parent() -> None:
    users()

    assert ToolRegistry.get("manage_users.create_user").__name__ == "manage_users.create_user"
    with pytest.raises(UnregisteredToolError):
        ToolRegistry.get("create_user")


async def test_a_turn_runs_a_subtool_by_its_scoped_name() -> None:
    users()

    turn = Turn("manage_users.create_user", kwargs={"username": "alice"})

    assert await turn.returning() == "created alice"


def test_nested_subtools_have_all_their_parents_in_the_name() -> None:

    @tool
    async def parent() -> None: ...

    @parent.subtool()
    async def child() -> None: ...

    @child.subtool()
    async def grandchild() -> None: ...

    assert ToolRegistry.get("parent.child.grandchild") is grandchild
    assert parent.doc_tree()["subtools"][0]["subtools"][0]["name"] == "grandchild"


def test_two_parents_may_have_children_of_one_name() -> None:

    @tool
    async def manage_users() -> None: ...

    @tool
    async def manage_posts() -> None: ...

    async def create_user() -> None: ...

    ours, theirs = manage_users.subtool()(create_user), manage_posts.subtool()(create_user)

    assert ToolRegistry.get("manage_users.create_user") is ours
    assert ToolRegistry.get("manage_posts.create_user") is theirs


def test_a_second_child_of_one_name_is_refused() -> None:
    parent = users()

    async def create_user() -> None: ...

    with pytest.raises(ValueError, match="create_user"):
        parent.subtool()(create_user)


def test_the_metadata_of_a_subtool_has_the_short_name() -> None:
    users()

    assert ToolRegistry.get("manage_users.create_user").metadata.name == "create_user"


def test_doc_tree_is_name_description_and_subtools() -> None:
    assert users().doc_tree() == {
        "name": "manage_users",
        "description": "Top-level user management tool.",
        "subtools": [
            {"name": "create_user", "description": "Create a new user.", "subtools": []},
            {"name": "delete_user", "description": "Delete an existing user.", "subtools": []},
        ],
    }


async def test_doc_tree_is_the_same_after_a_run() -> None:
    parent = users()
    before = parent.doc_tree()

    await parent()

    assert parent.doc_tree() == before


async def test_a_subtool_takes_the_options_of_a_tool() -> None:
    seen: list[str] = []

    @hook(ToolHook.AFTER_INVOKE, tags={"io"})
    async def log(result: str) -> None:
        seen.append(result)

    @tool
    async def parent() -> None: ...

    @parent.subtool(lock=True, tags=["io"], greeting="Hello")
    async def greet(name: str, greeting: str) -> str:
        return f"{greeting}, {name}"

    await cast("Any", greet)("Ada")

    assert seen == ["Hello, Ada"]
    assert greet.tags == {"io"}
    assert isinstance(greet.lock, asyncio.Lock)


def test_a_tool_is_found_by_the_name_of_its_function() -> None:

    @tool
    async def fetch(url: str) -> str:
        return url

    assert fetch.__name__ == "fetch"
    assert ToolRegistry.get("fetch") is fetch
    assert Turn("fetch").tool is fetch


def test_the_registry_lists_all_tools_and_the_definitions_of_roots() -> None:
    parent = users()

    @tool
    async def fetch(url: str) -> str:
        """Fetch a URL."""
        return url

    assert [made.__name__ for made in ToolRegistry.all()] == [
        "manage_users",
        "manage_users.create_user",
        "manage_users.delete_user",
        "fetch",
    ]
    assert ToolRegistry.definitions() == [parent.doc_tree(), fetch.doc_tree()]


def test_a_second_tool_of_one_name_is_refused_and_the_first_stays() -> None:

    async def fetch(url: str) -> str:
        return url

    first = tool(fetch)
    with pytest.raises(ValueError, match="fetch"):
        tool(fetch)

    assert ToolRegistry.get("fetch") is first


def test_an_unknown_tool_is_reported_by_name() -> None:
    with pytest.raises(UnregisteredToolError, match="fetch"):
        ToolRegistry.get("fetch")


def test_a_turn_looks_its_tool_up_when_it_is_made() -> None:
    with pytest.raises(UnregisteredToolError, match="fetch"):
        Turn("fetch")


def test_an_agent_is_found_by_name() -> None:
    agent = Agent("clerk", "Files things", [])

    assert AgentRegistry.get("clerk") is agent
    with pytest.raises(UnregisteredAgentError, match="nobody"):
        AgentRegistry.get("nobody")


def test_what_a_scope_registers_is_gone_after_it() -> None:

    async def fetch() -> None: ...

    with registries():
        first = tool(fetch)
        assert ToolRegistry.get("fetch") is first
    with registries():
        second = tool(fetch)
        assert ToolRegistry.get("fetch") is second
    with pytest.raises(UnregisteredToolError):
        ToolRegistry.get("fetch")


def test_registries_are_process_wide_by_default() -> None:
    program = """
import threading
from treefold import ToolRegistry, tool
@tool
async def fetch() -> None: ...
found = []
thread = threading.Thread(target=lambda: found.append(ToolRegistry.get("fetch") is fetch))
thread.start(); thread.join()
print(found)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.stderr) == ("[True]\n", "")


NOTEBOOK = """
from treefold import Agent, ToolHook, hook, tool

@tool
async def fetch() -> str:
    return {value!r}

@fetch.subtool
async def page() -> str:
    return {value!r}

@hook(ToolHook.BEFORE_INVOKE, tags={{"none"}})
async def audit() -> None: ...

clerk = Agent("clerk", {value!r}, [fetch])
"""


@pytest.mark.parametrize(
    "files",
    [
        ("<stdin>", "<stdin>"),
        ("<ipython-input-1-2ab4>", "<ipython-input-2-77cd>"),
        ("/tmp/ipykernel_4711/123.py", "/tmp/ipykernel_4711/456.py"),
    ],
)
async def test_a_cell_of_a_notebook_that_is_run_again_replaces_what_it_defined(
    files: tuple[str, str],
):
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with registries():
        for file, value in zip(files, ("old", "new"), strict=True):
            exec(compile(NOTEBOOK.format(value=value), file, "exec"), namespace)
        fetch = ToolRegistry.get("fetch")
        assert fetch is namespace["fetch"]
        assert [await fetch(), await ToolRegistry.get("fetch.page")()] == ["new", "new"]
        assert [tool.name for tool in fetch.subtools] == ["fetch.page"]
        assert HookRegistry.all() == [namespace["audit"]]
        assert AgentRegistry.get("clerk").description == "new"


async def test_a_subtool_whose_cell_is_run_again_is_there_once():
    namespace: dict[str, Any] = {}
    cell = "@fetch.subtool\nasync def image() -> str: ..."
    with registries():
        exec(compile(NOTEBOOK.format(value="x"), "<stdin>", "exec"), namespace)
        for _ in range(2):
            exec(compile(cell, "<stdin>", "exec"), namespace)
        assert namespace["fetch"].subtools == [namespace["page"], namespace["image"]]


async def test_a_module_that_is_changed_and_reloaded_replaces_what_it_defined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = tmp_path / "reloaded_tools.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with registries():
        source.write_text(NOTEBOOK.format(value="old"))
        module = import_module("reloaded_tools")
        source.write_text("# a new line\n" + NOTEBOOK.format(value="new"))
        reload(module)
        assert await ToolRegistry.get("fetch")() == "new"
        assert AgentRegistry.get("clerk").description == "new"
        assert len(ToolRegistry.all()) == 2
        del sys.modules["reloaded_tools"]
        again = import_module("reloaded_tools")
        assert ToolRegistry.get("fetch") is again.fetch


def test_a_second_different_tool_agent_or_hook_of_a_name_is_still_a_value_error(tmp_path: Path):
    @tool
    async def fetch() -> None: ...

    namespace: dict[str, Any] = {}
    twice = NOTEBOOK.format(value="x") * 2
    with registries():
        tool(fetch.fn)
        with pytest.raises(ValueError, match="'fetch' is taken"):
            tool(ToolRegistry.get("fetch").fn)
        with pytest.raises(ValueError, match="'fetch' is taken"):
            exec(compile(NOTEBOOK.format(value="x"), "<stdin>", "exec"), namespace)
    with registries(), pytest.raises(ValueError, match="'fetch' is taken"):
        exec(compile(twice, str(tmp_path / "module.py"), "exec"), namespace)
    with registries():
        Agent("clerk", "", [])
        with pytest.raises(ValueError, match="the name of agent 'clerk' is taken"):
            Agent("clerk", "", [])


def test_clear_empties_a_registry_and_a_scope_empties_only_itself():
    namespace: dict[str, Any] = {}
    with registries():
        exec(compile(NOTEBOOK.format(value="x"), "<stdin>", "exec"), namespace)
        with registries():
            Agent("inner", "", [])
            AgentRegistry.clear()
            assert [agent.name for agent in AgentRegistry.all()] == ["clerk"]
        for registry in (ToolRegistry, AgentRegistry, HookRegistry):
            assert registry.all()
            registry.clear()
            assert registry.all() == []
        assert ToolRegistry.definitions() == []
        with pytest.raises(UnregisteredToolError):
            ToolRegistry.get("fetch")

        @tool
        async def fetch() -> None: ...

        assert ToolRegistry.all() == [fetch]


@pytest.mark.parametrize("free", [lambda: ToolRegistry.unregister("look"), ToolRegistry.clear])
def test_a_tool_that_was_taken_out_is_not_kept_alive(free: Callable[[], None]):
    def define() -> ReferenceType[Any]:
        kept = Path()

        @tool
        async def look() -> Path:
            return kept

        return ref(look.fn)

    with registries():
        function = define()
        free()
        gc.collect()
        assert function() is None
