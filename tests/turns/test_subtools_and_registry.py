"""Scoped names, `doc_tree()`, and looking tools up."""

import asyncio
import subprocess
import sys
from typing import Any, cast

import pytest

from ramify import (
    Agent,
    AgentRegistry,
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
from ramify import ToolRegistry, tool
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
