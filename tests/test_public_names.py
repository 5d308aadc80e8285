"""The names that users import: which they are, where they are found, and what importing costs."""

import ast
import importlib
import inspect
import pickle
import pkgutil
import re
import subprocess
import sys
import traceback
import typing
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

import treefold
from treefold import TreefoldError
from treefold.core.events import Failure
from treefold.core.restoring import exception_of
from treefold.exports import homes

PUBLIC = {
    # the chat
    "AgentOptions", "AssistantMessage", "BlockedError", "Client", "ResultMessage",
    "SystemMessage", "TextBlock",
    "ThinkingBlock", "ToolResultBlock", "ToolUseBlock", "ToolUseDelta", "ToolUseError",
    "UserMessage", "query",
    # the spine and the call tree
    "AgentException", "AgentFunction", "AgentNode", "Budget", "BudgetExceeded", "CallGraphError",
    "CancellationException", "CodeFunction", "CodeNode", "Compaction", "DeniedError", "Ensemble",
    "EnsembleError",
    "Frame", "FromFile", "Function", "FunctionArg", "Limits", "NoAnswerError", "NoModelError",
    "Rate",
    "NoParentSessionError", "Node", "NodeState", "NodeView", "Notification", "Question",
    "QuestionKind", "Receipt", "SaidMessage",
    "TreefoldError", "RunContext", "RunInfo", "Runtime", "SessionBag", "SessionScope",
    "StepLimitError", "RaiseException", "ThinkMore", "ThinkMoreDecorator", "ThinkingSignature",
    "agent", "show",
    # decisions about calls
    "HOOK_POST_TOOL_USE", "HOOK_PRE_TOOL_USE", "HOOK_STOP", "HOOK_SUBAGENT_STOP",
    "HOOK_USER_PROMPT_SUBMIT", "HookDecision", "HookHandler", "HookMatcher", "PostToolUseEvent",
    "PreToolUseEvent", "StopEvent", "UserPromptSubmitEvent",
    # models
    "ModelProviderException", "ModelRefusedError", "ModelText", "Provider", "ThinkingPart",
    "TokenUsage", "ToolResult", "ToolUse", "TranscriptPart", "UserText",
    # saved conversations
    "SessionConflictError", "SessionInfo", "SessionStore", "StoreError", "UnknownSessionError",
    # journals
    "Edit", "FencedError", "InDoubtError", "MemoryStore", "Observer", "RecordedError",
    "SqliteStore", "StoreBusyError", "StoreOwnedError", "TooLargeError", "WorkerPhase",
    "WorkerSettings", "WorkerStatus", "attach",
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


FACES = [
    treefold.chat,
    treefold.engines,
    treefold.errors,
    treefold.events,
    treefold.mcp,
    treefold.models,
    treefold.stores,
    treefold.testing,
    treefold.toolbox,
    treefold.tree,
    treefold.turns,
]
MODULES = pytest.mark.parametrize("module", [treefold, *FACES], ids=lambda module: module.__name__)


def in_python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout


def public_names(module: ModuleType) -> set[str]:
    return set(module.__all__)


def short_name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def test_the_public_names_are_exactly_these():
    assert public_names(treefold) == PUBLIC
    assert set(dir(treefold)) == PUBLIC | {short_name(module) for module in FACES}


@pytest.mark.parametrize("module", FACES, ids=short_name)
def test_what_dir_shows_of_a_module_is_its_public_names(module: ModuleType):
    assert set(dir(module)) == public_names(module)


def test_every_public_name_is_found_in_one_of_the_modules_by_topic():
    by_topic = set[str]().union(*map(public_names, FACES))
    assert public_names(treefold) - by_topic == {"SessionStore", "__version__"}


@pytest.mark.parametrize(
    "module",
    [
        treefold.chat,
        treefold.engines,
        treefold.errors,
        treefold.events,
        treefold.testing,
        treefold.toolbox,
        treefold.tree,
        treefold.turns,
    ],
    ids=short_name,
)
def test_the_docstring_of_a_module_is_its_table_of_contents(module: ModuleType):
    assert public_names(module) <= set(re.findall(r"\w+", str(module.__doc__)))


TYPE_ALIASES = {
    "HookEvent", "HookHandler", "ModelEvent", "Take", "ThinkingSignature", "TranscriptPart"
}  # fmt: skip


@MODULES
def test_every_public_name_has_a_docstring_with_an_example(module: ModuleType):
    names = public_names(module)
    constants = {name for name in names if name.isupper()}
    for name in names - constants - TYPE_ALIASES - {"__version__"}:
        found = getattr(module, name)
        assert ">>>" in (found.__doc__ or ""), f"{name} needs an example in its docstring"


@MODULES
def test_type_checkers_are_told_the_same_names(module: ModuleType):
    stub = ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text())
    told = {
        (node.module, alias.asname)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name for _, name in told} == set(dir(module))
    for home, name in told:
        assert getattr(importlib.import_module(str(home)), str(name)) is getattr(module, str(name))


@pytest.mark.parametrize(
    ("found", "topic"),
    [
        (treefold.Agent, "Turns"),
        (treefold.AgentFunction, "Call tree"),
        (treefold.AgentNode, "Call tree"),
        (treefold.AgentOptions, "Chat"),
        (treefold.agent, "Call tree"),
        (treefold.models.Session, "Models"),
        (treefold.stores.SavedSession, "Chat"),
        (treefold.SessionBag, "Call tree"),
        (treefold.SessionInfo, "Chat"),
        (treefold.SessionStore, "Chat"),
    ],
    ids=lambda found: getattr(found, "__name__", str(found)),
)
def test_names_that_are_easily_confused_say_what_they_are_and_what_not(found: object, topic: str):
    first, second, *_ = str(found.__doc__).split("\n\n")
    assert first.startswith(f"{topic}: ")
    assert re.search(r"\b(no|not|nothing)\b", second)


def test_the_modules_need_no_import_of_their_own():
    script = "import treefold; print(treefold.errors.StoreError, treefold.tree.Runtime.__name__)"
    assert in_python(script) == "<class 'treefold.errors.StoreError'> Runtime\n"


def test_names_are_loaded_from_a_zip_file(tmp_path: Path):
    package = Path(str(treefold.__file__)).parent
    with ZipFile(tmp_path / "app.zip", "w") as archive:
        for file in package.rglob("*.py*"):
            if file.suffix in {".py", ".pyi"}:
                archive.write(file, file.relative_to(package.parent))
    script = f"""if True:
        import sys
        sys.path.insert(0, {str(tmp_path / "app.zip")!r})
        from treefold import NodeState, errors
        print(errors.__file__, NodeState.Success)"""
    assert in_python(script) == f"{tmp_path}/app.zip/treefold/errors.py success\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        _ = treefold.Agnet  # pyright: ignore


FOR_AGENTS = [
    "treefold.agents",
    "treefold.models",
    "treefold.runtime.conversations",
]
FOR_STORES = [
    "sqlite3",
    "treefold.core.forking",
    "treefold.runtime.durable.journal_writer",
    "treefold.runtime.opening",
    "treefold.runtime.recovery",
    "treefold.stores",
]


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import treefold", ["pydantic", "asyncio"]),
        ("from treefold import Runtime, tool", ["pydantic", *FOR_AGENTS, *FOR_STORES]),
        ("from treefold import *", ["pydantic", "docstring_parser"]),
        ("from treefold.engines import *", ["pydantic", "docstring_parser"]),
    ],
)
def test_importing_loads_no_provider_no_web_framework_and_nothing_heavy(
    code: str, absent: list[str]
):
    never = ["openai", "anthropic", "google", "xllamacpp", "starlette", "uvicorn", "mcp", "httpx"]
    never += ["click", "tiktoken", "procrastinate", "psycopg", "temporalio"]
    script = f"import sys\n{code}\nprint(*sys.modules)"
    assert set(in_python(script).split()) & {*never, *absent} == set()


ERRORS = pytest.mark.parametrize("name", sorted(public_names(treefold.errors)))


def all_errors(base: type[Exception]) -> set[type[Exception]]:
    return {base}.union(*map(all_errors, base.__subclasses__()))


def test_every_error_of_treefold_is_public_and_says_so():
    for module in pkgutil.walk_packages(treefold.__path__, "treefold."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = {error for error in all_errors(TreefoldError) if error.__module__.startswith("treefold")}
    public = {getattr(treefold.errors, name) for name in public_names(treefold.errors)}
    assert {error.__name__ for error in ours} == {error.__name__ for error in public}
    assert {error.__module__ for error in ours} == {"treefold.errors"}


def test_a_traceback_names_what_a_program_can_import():
    with pytest.raises(treefold.UnregisteredToolError) as caught:
        treefold.ToolRegistry.get("nothing")
    [line] = traceback.format_exception_only(caught.value)
    assert line.startswith("treefold.errors.UnregisteredToolError: no tool is called 'nothing'")


def test_an_error_of_a_user_keeps_its_own_module():
    class OrderError(treefold.CallGraphError):
        pass

    assert OrderError.__module__ == __name__


@ERRORS
def test_the_type_hints_of_an_error_are_found(name: str):
    error = getattr(treefold.errors, name)
    assert set(error.__annotations__) <= set(typing.get_type_hints(error))


@ERRORS
def test_an_error_class_can_be_pickled_by_its_public_name_and_its_old_one(name: str):
    error = getattr(treefold.errors, name)
    by_public_name = pickle.dumps(error, protocol=0)
    assert by_public_name.startswith(f"ctreefold.errors\n{name}\n".encode())
    assert pickle.loads(by_public_name) is error
    home = homes("treefold.errors")[name]
    assert pickle.loads(f"c{home}\n{name}\n.".encode()) is error


@ERRORS
@pytest.mark.parametrize("journal", ["of today", "of an earlier version"])
def test_a_recorded_error_is_restored_from_journals_of_any_age(name: str, journal: str):
    home = "treefold.errors" if journal == "of today" else homes("treefold.errors")[name]
    if name != "RecordedError":
        restored = exception_of(Failure(name, "it failed", home))
        assert isinstance(restored, getattr(treefold.errors, name))
        assert Failure.of(restored) == Failure(name, "it failed")
        assert Failure.of(restored).module == "treefold.errors"


def test_a_recorded_error_is_restored_though_its_module_was_not_imported():
    script = (
        "from treefold.core.events import Failure\n"
        "from treefold.core.restoring import exception_of\n"
        "print(repr(exception_of(Failure('FileError', 'it is gone', 'treefold.errors'))))"
    )
    assert in_python(script) == "FileError('it is gone')\n"


CLASSES = [
    found
    for module in FACES
    for found in {getattr(module, name) for name in public_names(module) - TYPE_ALIASES}
    if isinstance(found, type) and not issubclass(found, TreefoldError)
]


@pytest.mark.parametrize("found", sorted(set(CLASSES), key=str), ids=lambda found: found.__name__)
def test_the_source_and_the_type_hints_of_every_other_class_are_found(found: type):
    assert f"class {found.__name__}" in inspect.getsource(found)
    typing.get_type_hints(found)
