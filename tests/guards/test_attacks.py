"""Ways around a guard that were found once; each counts the effect that a guard is there for."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from guards.program import until_it_rests
from treefold import (
    AgentFunction,
    Budget,
    CodeFunction,
    Edit,
    HookDecision,
    HookMatcher,
    ModelText,
    Runtime,
    ToolUse,
)
from treefold.core.guards import Guards
from treefold.errors import HeldBackError
from treefold.events import CallRequested
from treefold.testing import ScriptedModel

done: list[Any] = []  # the effects of a test


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


def pay(ctx: Any, amount: int, *, dry: bool = False) -> str:
    if not dry:
        done.append(amount)
    return "paid"


def send(ctx: Any, text: str) -> str:
    done.append(text)
    return "sent"


def agent_of(*functions: CodeFunction) -> AgentFunction:
    return AgentFunction("plan", "Plan.", user_prompt_template="Go.", uses=functions)


def model_that_calls(*calls: ToolUse) -> ScriptedModel:
    """Return a model that asks for these calls, and is done after them."""

    def reply(request: Any) -> Any:
        made = any(isinstance(part, ToolUse) for part in request.transcript)
        return ModelText("Done.") if made else list(calls)

    return ScriptedModel(reply, name="scripted")


def a_payment(**options: Any) -> AgentFunction:
    return agent_of(CodeFunction(name="pay", desc="Pay.", callable=pay, **options))


SMALL = model_that_calls(ToolUse("1", "pay", {"amount": 1}))


def is_large(args: Mapping[str, Any]) -> bool:
    return args["amount"] > 100


async def ask_about_large(event: Any) -> HookDecision | None:
    return HookDecision(ask="May it pay?") if is_large(event.tool_input) else None


# Arguments that were edited


@pytest.mark.parametrize("guard", ["function", "hook"])
def test_edited_arguments_are_still_asked_about_after_a_restart(tmp_path: Path, guard: str):
    plan = a_payment(repeatable=True, ask=is_large if guard == "function" else False)
    options: Any = {"models": SMALL, "store": tmp_path / "run.db"}
    if guard == "hook":
        options["hooks"] = {"pre_tool_use": [ask_about_large]}
    with Runtime([plan], **options) as runtime:
        node = runtime.invoke(plan)
        node.result(20)
        [call] = runtime.get_view(node.id).children
        runtime.fork(call.id, edit=Edit(args={"amount": 5000}))
        until_it_rests(runtime)
        assert len(runtime.questions()) == 1
        runtime.close()
    with Runtime([plan], **options) as runtime:
        runtime.recover()
        until_it_rests(runtime)
        assert done == [1]
        [question] = runtime.questions()
        runtime.answer(question.id, "deny")
        until_it_rests(runtime)
    assert done == [1]


async def only_small(event: Any) -> HookDecision:
    return HookDecision(modified_input={"amount": min(event.tool_input["amount"], 10)})


def test_a_hook_changes_edited_arguments_too(tmp_path: Path):
    plan = a_payment()
    hooks: Any = {"pre_tool_use": [only_small]}
    with Runtime([plan], models=SMALL, store=tmp_path / "run.db", hooks=hooks) as runtime:
        node = runtime.invoke(plan)
        node.result(20)
        [call] = runtime.get_view(node.id).children
        forked = runtime.fork(call.id, edit=Edit(args={"amount": 5000}))
        forked.result(20)
        assert done == [1, 10]
        assert runtime.get_view(forked.id).children[0].inputs == {"amount": 10}


def test_an_approval_is_of_the_arguments_that_were_shown(tmp_path: Path):
    most = 10

    async def limit(event: Any) -> HookDecision:
        return HookDecision(ask="May it pay?", modified_input={"amount": most})

    plan = a_payment()
    options: Any = {"models": SMALL, "store": tmp_path / "run.db"}
    with Runtime([plan], **options, hooks={"pre_tool_use": [limit]}) as runtime:
        runtime.invoke(plan)
        until_it_rests(runtime)
        runtime.close()
    with Runtime([plan], **options) as runtime:  # has no hook, and holds the run back
        [question] = runtime.questions()
        runtime.answer(question.id, "allow")
        runtime.close()
    most = 5000
    with Runtime([plan], **options, hooks={"pre_tool_use": [limit]}) as runtime:
        runtime.recover()
        until_it_rests(runtime)
        assert done == []
        assert len(runtime.questions()) == 1


# What decides from the arguments


@pytest.mark.parametrize("args", [{"amount": 1, "dry": "false"}, {"amount": 1}])
def test_a_function_that_decides_gets_the_arguments_of_the_call(
    tmp_path: Path, args: Mapping[str, Any]
):
    plan = a_payment(ask=lambda args: not args["dry"])
    model = model_that_calls(ToolUse("1", "pay", dict(args)))
    with Runtime([plan], models=model, store=tmp_path / "run.db") as runtime:
        runtime.invoke(plan)
        until_it_rests(runtime)
        [question] = runtime.questions()
        assert question.text.startswith("may pay(")
    assert done == []


async def make_small(event: Any) -> None:
    event.tool_input["amount"] = 1


@pytest.mark.parametrize("levels", [1, 2])
def test_a_hook_that_changes_its_event_hides_nothing_from_the_next(tmp_path: Path, levels: int):
    plan = a_payment()
    model = model_that_calls(ToolUse("1", "pay", {"amount": 5000}))
    options: Any = {"models": model, "store": tmp_path / "run.db"}
    first: list[Any] = [make_small, ask_about_large] if levels == 1 else [make_small]
    with Runtime([plan], **options, hooks={"pre_tool_use": first}, allowed_tools=[]) as runtime:
        runtime.invoke(plan).result(20)
    options["hooks"] = {"pre_tool_use": [ask_about_large]}
    options["guards"] = [make_small]
    with Runtime([plan], **options) as runtime:
        runtime.fork(1, without=["allowed_tools"])
        until_it_rests(runtime)
        assert len(runtime.questions()) == 1
    assert done == []


# Hooks that have the same name


def forbidding(word: str) -> Callable[[Any], Any]:
    async def forbid(event: Any) -> HookDecision | None:
        said = str(event.tool_input)
        return HookDecision(continue_=False, reason=word) if word in said else None

    return forbid


class Forbid:
    def __init__(self, word: str) -> None:
        self._decide = forbidding(word)

    async def __call__(self, event: Any) -> Any:
        return await self._decide(event)

    async def decide(self, event: Any) -> Any:
        return await self._decide(event)


KINDS = {
    "closures": forbidding,
    "objects": Forbid,
    "methods": lambda word: Forbid(word).decide,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("matcher", [None, "each"])
def test_hooks_of_the_same_name_all_bind_a_fork(tmp_path: Path, kind: str, matcher: str | None):
    words = ("red", "green", "blue")
    functions = [CodeFunction(name=f"send_{word}", desc="Send.", callable=send) for word in words]
    plan = agent_of(*functions)
    model = model_that_calls(*[ToolUse(word, f"send_{word}", {"text": word}) for word in words])
    hooks: Any = [HookMatcher(matcher and f"send_{word}", [KINDS[kind](word)]) for word in words]
    options: Any = {"models": model, "store": tmp_path / "run.db"}
    with Runtime([plan], **options, hooks={"pre_tool_use": hooks}) as runtime:
        node = runtime.invoke(plan)
        node.result(20)
        assert done == []
        runtime.fork(node.id, edit=Edit(system="Again.")).result(20)
    assert done == []


async def ask_always(event: Any) -> HookDecision:
    return HookDecision(ask="May it pay?")


async def allow_always(event: Any) -> HookDecision:
    return HookDecision()


def test_of_hooks_with_similar_names_each_is_found_by_its_own(tmp_path: Path):
    plan = a_payment()
    for hook, module in ((allow_always, "app.rules"), (ask_always, "rules")):
        hook.__module__, hook.__qualname__ = module, "approve"
    hooks: Any = {"pre_tool_use": [HookMatcher("nothing", [allow_always]), ask_always]}
    with Runtime([plan], models=SMALL, store=tmp_path / "run.db", hooks=hooks) as runtime:
        node = runtime.invoke(plan)
        until_it_rests(runtime)
        [question] = runtime.questions()
        runtime.answer(question.id, "deny")
        node.result(20)
        runtime.fork(node.id, edit=Edit(system="Again."))
        until_it_rests(runtime)
        assert len(runtime.questions()) == 1
    assert done == []


def test_a_method_without_its_object_is_no_hook(tmp_path: Path):
    plan, module = a_payment(), ModuleType("methods")
    module.Forbid = Forbid  # pyright: ignore[reportAttributeAccessIssue]
    for hook in (Forbid("1"), Forbid("1").decide):
        options: Any = {"models": SMALL, "store": tmp_path / f"{hook!r:.20}.db"}
        with Runtime([plan], **options, hooks={"pre_tool_use": [hook]}) as runtime:
            runtime.invoke(plan).result(20)
        with (
            Runtime([plan], **options, guards=[module]) as runtime,
            pytest.raises(HeldBackError, match="guarded by guards.test_attacks:Forbid"),
        ):
            runtime.fork(1)
    assert done == []


class Lenient:
    most = 10_000

    @classmethod
    async def decide(cls, event: Any) -> HookDecision:
        return HookDecision(continue_=event.tool_input["amount"] <= cls.most)


class Strict(Lenient):
    most = 0


async def limit(event: Any, most: int = 10_000) -> HookDecision:
    return HookDecision(continue_=event.tool_input["amount"] <= most)


STRICT: Final = {
    "a partial function": (partial(limit, most=0), limit),
    "an inherited class method": (Strict.decide, Lenient.decide),
}


@pytest.mark.parametrize("kind", STRICT)
def test_what_a_hook_is_made_of_does_not_stand_in_for_it(tmp_path: Path, kind: str):
    plan, module = a_payment(), ModuleType("rules")
    module.limit, module.Lenient = limit, Lenient  # pyright: ignore[reportAttributeAccessIssue]
    options: Any = {"models": SMALL, "store": tmp_path / "run.db"}
    strict, lenient = STRICT[kind]
    with Runtime([plan], **options, hooks={"pre_tool_use": [strict]}) as runtime:
        runtime.invoke(plan).result(20)
    for guards in ([module], [lenient]):
        with Runtime([plan], **options, guards=guards) as runtime, pytest.raises(HeldBackError):
            runtime.fork(1)
    assert done == []


# What is lifted, and what is done again


@pytest.mark.parametrize("guard", ["allowed_tools", "disallowed_tools"])
def test_what_is_added_after_a_guard_was_lifted_binds(tmp_path: Path, guard: str):
    plan = a_payment()
    options: Any = {"models": SMALL, "store": tmp_path / "run.db"}
    first: Any = {guard: ["pay"] if guard == "disallowed_tools" else []}
    with Runtime([plan], **options, **first) as runtime:
        runtime.invoke(plan).result(20)
    with Runtime([plan], **options, **first) as runtime:
        # The program that lifts the guard has one itself, which it adds.
        lifted = runtime.fork(1, without=[guard])
        lifted.result(20)
    with Runtime([plan], **options) as runtime:
        runtime.fork(lifted.id, at=1).result(20)
        assert done == []
        runtime.fork(lifted.id, without=[guard]).result(20)
    assert done == [1]


def test_a_call_that_failed_is_not_repeated_if_it_is_forbidden_by_now(tmp_path: Path):
    def fail(ctx: Any, amount: int) -> str:
        done.append(amount)
        raise OSError("no network")

    plan = agent_of(CodeFunction(name="pay", desc="Pay.", callable=fail))
    options: Any = {"models": SMALL, "store": tmp_path / "run.db", "on_tool_error": "pause"}
    with Runtime([plan], **options) as runtime:
        runtime.invoke(plan)
        until_it_rests(runtime)
        runtime.close()
    with Runtime([plan], **options, disallowed_tools=["pay"]) as runtime:
        [node] = runtime.recover()
        [question] = runtime.questions()
        runtime.answer(question.id, "resume")
        node.result(20)
    assert done == [1]


def test_a_name_that_guards_compare_is_not_redacted(tmp_path: Path):
    plan = a_payment()

    def redact(text: str) -> str:
        return text.replace("team", "***").replace("pay", "***")

    options: Any = {"models": SMALL, "store": tmp_path / "run.db", "redact": redact}
    budget = Budget(calls=9, name="team")
    with Runtime([plan], **options, budget=budget, disallowed_tools=["pay"]) as runtime:
        runtime.invoke(plan).result(20)
    with Runtime([plan], **options) as runtime:
        first = next(iter(runtime.events(1)))
    assert isinstance(first, CallRequested)
    assert first.options is not None
    assert first.options.guards == (Guards(disallowed=("pay",), budget=budget),)
