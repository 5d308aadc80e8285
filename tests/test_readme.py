"""What the documents show is executed, and what they promise about the surface is compared."""

import ast
import importlib
import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import treefold
import treefold.chat
import treefold.mcp
import treefold.models
import treefold.stores
import treefold.testing
import treefold.toolbox
import treefold.turns

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

PUBLIC = {
    # the chat
    "AgentOptions", "AssistantMessage", "BlockedError", "Client", "SystemMessage", "TextBlock",
    "ThinkingBlock", "ToolResultBlock", "ToolUseBlock", "ToolUseDelta", "ToolUseError",
    "UserMessage", "query",
    # the spine and the call tree
    "AgentException", "AgentFunction", "AgentNode", "Budget", "BudgetExceeded", "CallGraphError",
    "CancellationException", "CodeFunction", "CodeNode", "DeniedError", "Ensemble", "EnsembleError",
    "Frame", "FromFile", "Function", "FunctionArg", "Limits", "NoAnswerError",
    "NoParentSessionError", "Node", "NodeState", "NodeView", "Question", "QuestionKind",
    "TreefoldError", "RunContext", "Runtime", "SessionBag", "SessionScope", "StepLimitError",
    "RaiseException", "ThinkMore", "ThinkMoreDecorator", "ThinkingSignature", "agent",
    # decisions about calls
    "HOOK_POST_TOOL_USE", "HOOK_PRE_TOOL_USE", "HOOK_USER_PROMPT_SUBMIT", "HookDecision",
    "PostToolUseEvent", "PreToolUseEvent", "UserPromptSubmitEvent",
    # models
    "ModelProviderException", "ModelRefusedError", "ModelText", "Provider", "ThinkingPart",
    "TokenUsage", "ToolResult", "ToolUse", "TranscriptPart", "UserText",
    # saved conversations
    "SessionConflictError", "SessionInfo", "SessionStore", "StoreError", "UnknownSessionError",
    # journals
    "Edit", "FencedError", "InDoubtError", "MemoryStore", "Observer", "RecordedError",
    "SqliteStore", "StoreBusyError", "StoreOwnedError", "TooLargeError", "attach",
    # chat
    "compact_messages", "estimate_tokens", "get_base_url", "get_model", "truncate_messages",
    # turns
    "Agent", "AgentHook", "AgentRegistry", "CompletionCheckReturnError", "ContextItem",
    "ContextPool", "ContextPoolHook", "ContextQueue", "ContextQueueHook", "Hook", "HookRegistry",
    "SafeExecutionError", "StopReason", "Tool", "ToolHook", "ToolMetadata", "ToolRegistry",
    "ToolType", "Turn", "TurnHook", "TurnTimeoutError", "UnregisteredAgentError",
    "UnregisteredHookError", "UnregisteredToolError", "WrongRunMethodError", "hook", "registries",
    "tool",
    "__version__",
}  # fmt: skip


def run_block(code: str) -> str:
    # compiled like a file, so that annotations and inspect find what they need
    namespace: dict[str, Any] = {"__name__": "readme"}
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "README.md", "exec"), namespace)
    return printed.getvalue()


def test_the_first_program_is_at_most_fifteen_lines_and_prints_what_it_says():
    assert len(BLOCKS[0].strip().splitlines()) <= 15
    assert run_block(BLOCKS[0]) == "Hello, World!\n"


@pytest.mark.parametrize("code", [block for block in BLOCKS[1:] if "trips.db" not in block])
def test_every_other_block_of_the_readme_runs(code: str):
    # One block only defines tools and hooks.
    assert run_block(code) or code == BLOCKS[1]


def test_the_call_tree_of_the_tour_prints_its_tree():
    [tree] = [block for block in BLOCKS if "async def compare" in block]
    assert run_block(tree) == "a\n1 compare success [3, 1]\n"


def test_the_journal_of_the_tour_goes_on_and_is_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    [journal] = [block for block in BLOCKS if "trips.db" in block]
    assert run_block(journal) == "Lisbon, booked\nstay at home\n"


def test_the_public_names_are_exactly_these():
    assert set(vars(treefold)["__all__"]) == PUBLIC
    assert {name for name in dir(treefold) if not name.startswith("_")} - PUBLIC <= {
        # the folders, once something in them was used, and what __init__ itself needs
        "agents", "chat", "core", "models", "runtime", "stores", "testing", "toolbox", "turns",
        "views", "cli", "mcp", "http_server", "version", "exports",
    }  # fmt: skip


TYPE_ALIASES = {"HookEvent", "HookHandler", "ModelEvent", "ThinkingSignature"}
PACKAGES = pytest.mark.parametrize(
    "package",
    [
        treefold,
        treefold.chat,
        treefold.mcp,
        treefold.models,
        treefold.stores,
        treefold.testing,
        treefold.toolbox,
        treefold.turns,
    ],
)


@PACKAGES
def test_every_public_name_has_a_docstring_with_an_example(package: ModuleType):
    constants = {name for name in package.__all__ if name.isupper()}
    for name in set(package.__all__) - constants - TYPE_ALIASES - {"__version__"}:
        found = getattr(package, name)
        assert ">>>" in (found.__doc__ or ""), f"{name} needs an example in its docstring"


@pytest.mark.parametrize(
    "package",
    [
        treefold,
        treefold.chat,
        treefold.mcp,
        treefold.models,
        treefold.stores,
        treefold.toolbox,
        treefold.turns,
    ],
)
def test_type_checkers_are_told_the_same_names(package: ModuleType):
    stub = ast.parse(Path(str(package.__file__)).with_suffix(".pyi").read_text())
    told = {
        (node.module, alias.asname)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name for _, name in told} == set(package.__all__)
    for module, name in told:
        assert getattr(importlib.import_module(str(module)), str(name)) is getattr(
            package, str(name)
        )


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        _ = treefold.Agnet  # pyright: ignore


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import treefold", ["pydantic", "asyncio"]),
        ("from treefold import *", ["pydantic", "docstring_parser"]),
    ],
)
def test_importing_loads_no_provider_no_web_framework_and_nothing_heavy(
    code: str, absent: list[str]
):
    never = ["openai", "anthropic", "google", "xllamacpp", "starlette", "uvicorn", "mcp", "httpx"]
    never += ["click", "tiktoken"]
    script = f"import sys\n{code}\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(loaded) & {*never, *absent} == set()


def test_the_changelog_tells_of_this_version():
    assert f"## {treefold.__version__}" in (ROOT / "CHANGELOG.md").read_text()
