"""The tree that is interrupted: every kind of call, none like another.

Each tool says when it begins and when it ends; the model answers by what it is shown, and by
nothing else. So all that a run did, or did again, can be read from the effects.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from crash.effects import Effects
from treefold import (
    AgentFunction,
    CodeFunction,
    Ensemble,
    Function,
    FunctionArg,
    InDoubtError,
    ModelText,
    RunContext,
    ThinkMore,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.toolbox import human_in_loop, raise_exception

COLOURS: Final = ("red", "blue")
REPEATABLE: Final = frozenset({"first", "peek"})
UNREPEATABLE: Final = frozenset({"second", "charge", "mail", "stamp", "fussy", "measure"})


@dataclass(frozen=True)
class Size:
    """Something that is no builtin."""

    width: int
    height: int


SCRIPTS: Final[dict[str, list[list[ToolUse]]]] = {
    "scout": [
        [ToolUse("s1", "peek", {"n": 1})],
        [ToolUse("s2", "charge", {"n": 2}), ToolUse("s3", "peek", {"n": 3})],
        [ToolUse("s4", "assistant", {"n": 4})],
        [ToolUse("s5", "human_in_loop", {"question": "May the scout go on?"})],
    ],
    "assistant": [[ToolUse("a1", "peek", {"n": 5}), ToolUse("a2", "charge", {"n": 6})]],
    "squad": [
        [
            ToolUse("q1", "peek", {"n": 7}),
            ToolUse("q2", "mail", {"n": 8}),
            ToolUse("q3", "charge", {"n": 9}),
            ToolUse("q4", "quitter", {"n": 10}),
        ],
        [ToolUse("q5", "mail", {"n": 11})],
    ],
    "quitter": [
        [ToolUse("u1", "peek", {"n": 12})],
        [ToolUse("u2", "raise_exception", {"msg": "there is nothing"})],
    ],
}


def reply(request: ScriptedRequest) -> Sequence[TranscriptPart] | str:
    """Answer by what was said so far."""
    first = request.transcript[0]
    assert isinstance(first, UserText)
    name = first.text.split()[2].rstrip(".")  # "I am NAME."
    done = len(answered(request.transcript))
    script = SCRIPTS.get(name, [])
    if done < len(script):
        return script[done]
    results = [part.content for part in request.transcript if isinstance(part, ToolResult)]
    more = " again" if "<answer" in first.text else ""
    return f"{name}{more}: {', '.join(results) or 'nothing'}"


def answered(transcript: Sequence[TranscriptPart]) -> list[str]:
    """Return a mark of each request in *transcript* that has a response; equal ones look alike."""
    marks: list[str] = []
    for place, part in enumerate(transcript):
        is_said = isinstance(part, ModelText | ToolUse)
        if is_said and place and not isinstance(transcript[place - 1], ModelText | ToolUse):
            marks.append(mark(transcript[:place]))
    return marks


def mark(transcript: Sequence[TranscriptPart]) -> str:
    """Return a short text that is the same for the same conversation."""
    said: list[str] = []
    for part in transcript:
        match part:
            case UserText() | ModelText():
                said.append(part.text)
            case ToolUse():
                said.append(f"{part.id} {part.name} {dict(part.args)}")
            case ToolResult():
                said.append(f"{part.tool_use_id} {part.content}")
            case _:
                raise AssertionError(f"nobody says {part!r}")
    name = " ".join(said[0].split()[2:4])
    digest = hashlib.sha256("\0".join(said).encode()).hexdigest()
    return f"{name} {len(said)} {digest[:12]}"


def outcome(fn: str, n: int) -> Any:
    """Return what a tool gives."""
    match fn:
        case "first":
            return n * 10
        case "second":
            return n + 1
        case "stamp":
            return n * 7
        case "measure":
            return Size(n, n + 1)
        case _:
            return f"{fn} {n}"


class Stage:
    """The functions of the tree, and its model; *run* decides in which order branches go on."""

    def __init__(self, effects: Effects, run: int) -> None:
        self._effects = effects
        self._run = run
        peek, charge, mail = (
            self._tool("peek", str),
            self._tool("charge", str),
            self._tool("mail", str),
        )
        assistant = _agent("assistant", peek, charge)
        quitter = _agent("quitter", peek, raise_exception)
        self._scout = _agent("scout", peek, charge, assistant, human_in_loop)
        self._squad = _agent("squad", peek, mail, charge, quitter, parallel_tools=True)
        self._drafter = ThinkMore(_agent("drafter"))
        self._voters = Ensemble(_agent("voter"), {"crash": 2})
        self._code = {name: self._tool(name, int) for name in ("first", "second", "stamp")}
        self._code["fussy"] = self._tool("fussy", str)
        self._code["measure"] = CodeFunction(callable=self._measure, name="measure")
        self.root = CodeFunction(
            callable=self._root,
            name="root",
            uses=[
                *self._code.values(), self._scout, self._squad, self._drafter, self._voters,
            ],
        )  # fmt: skip
        self.model = ScriptedModel(self._reply)

    def _reply(self, request: ScriptedRequest) -> Any:
        self._effects.add("request", mark=mark(request.transcript))
        return reply(request)

    # Tools

    def _tool(self, name: str, returns: type) -> CodeFunction:
        async def work(ctx: RunContext, n: int) -> Any:
            self._effects.add("begin", fn=name, args={"n": n}, key=ctx.idempotency_key)
            for _ in range((n + self._run) % 4):
                await asyncio.sleep(0)
            self._effects.add("end", fn=name, args={"n": n}, key=ctx.idempotency_key)
            if name == "fussy":
                raise ValueError(f"{n} will not do")
            return outcome(name, n)

        work.__annotations__["return"] = returns
        repeatable = True if name in REPEATABLE else None
        return CodeFunction(callable=work, name=name, desc=f"To {name}.", repeatable=repeatable)

    def _measure(self, ctx: RunContext, n: int) -> Size:
        """Do so, in a thread."""
        self._effects.add("begin", fn="measure", args={"n": n}, key=ctx.idempotency_key)
        self._effects.add("end", fn="measure", args={"n": n}, key=ctx.idempotency_key)
        return outcome("measure", n)

    # The root

    async def _root(self, ctx: RunContext, n: int) -> dict[str, Any]:
        async def call(function: Function, n: int) -> Any:
            try:
                return await ctx.invoke(function, {"n": n})
            finally:
                self._effects.add("saw", fn=function.name, args={"n": n})

        async def branch(i: int) -> int:
            return await call(self._code["second"], await call(self._code["first"], i))

        numbers = [n, n + 1, n + 2]
        if self._run % 2:
            numbers.reverse()
        *branches, scout, colour = await _all(
            *[branch(i) for i in numbers],
            call(self._scout, 50),
            ctx.ask("Which colour?", COLOURS),
        )
        squad, draft = await _all(call(self._squad, 51), call(self._drafter, 52))
        size = await call(self._code["measure"], 53)
        return {
            "branches": sorted(branches),
            "scout": scout,
            "colour": colour,
            "squad": squad,
            "draft": draft,
            "fussy": await _caught(ValueError, call(self._code["fussy"], 54)),
            "stamp": await _caught(InDoubtError, call(self._code["stamp"], 55)),
            "size": [type(size).__name__, size.width, size.height],
            "votes": await call(self._voters, 56),
            "other colour": await ctx.ask("Which colour?", COLOURS),
        }


def _agent(name: str, *uses: Function, **options: Any) -> AgentFunction:
    return AgentFunction(
        name,
        f"To {name}.",
        args=[FunctionArg("n", int)],
        user_prompt_template=f"I am {name}. {{n}}",
        uses=uses,
        **options,
    )


async def _all(*work: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*work)  # noqa: TID251 - what programs do


async def _caught(kind: type[Exception], call: Awaitable[Any]) -> Any:
    try:
        return await call
    except kind as error:
        return type(error).__name__ if kind is InDoubtError else f"{type(error).__name__}: {error}"


def right_result(*, stamped: bool) -> dict[str, Any]:
    """Return what the root gives; *stamped* unless somebody said that its stamp failed."""
    scout = "peek 1, charge 2, peek 3, assistant: peek 5, charge 6, red"
    return {
        "branches": [11, 21, 31],
        "scout": f"scout: {scout}",
        "colour": "red",
        "squad": "squad: peek 7, mail 8, charge 9, AgentException: there is nothing, mail 11",
        "draft": "drafter again: nothing",
        "fussy": "ValueError: 54 will not do",
        "stamp": 55 * 7 if stamped else "InDoubtError",
        "size": ["Size", 53, 54],
        "votes": "voter again: nothing",
        "other colour": "red",
    }


def decide(effects: Effects, fn: str, n: int) -> str:
    """Say what is to become of a call in doubt, as somebody would who looked at the effects."""
    if fn == "stamp":
        return "fail: nobody saw it"
    ended = any(
        (line["what"], line.get("fn"), line.get("args")) == ("end", fn, {"n": n})
        for line in effects.lines()
    )
    value = outcome(fn, n)
    if fn == "fussy" or (fn != "mail" and not ended):
        return "retry"
    if isinstance(value, Size):
        return f'use: {{"width": {value.width}, "height": {value.height}}}'
    return f"use: {value}"
