"""Whatever is done to a client, in whatever order: its requests are in order, and nothing is lost.

A machine talks to a server that checks each request by the rules of its provider. What somebody
says and what the server answers are words of their own, so that it can be told where they are.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from chat_helpers import ANTHROPIC, GEMINI, add, after
from treefold import AgentOptions, Client, ModelProviderException, NodeState, Runtime, TextBlock
from treefold.core.errors import CancellationException, InvalidValueError
from treefold.models import Retry
from wire import ModelServer, Reply, anthropic_wire, gemini_wire, openai_wire
from wire.protocols import PROTOCOLS, Protocol
from wire.replies import Cut, Stall

WORDS = re.compile(r"\b[a-z]+\d+\b")
GOOD = '{"a":1,"b":2}'
CALLS = ("call", "two calls", "unusable call", "unknown call")
KINDS = ("text", *CALLS, "nothing", "pause", "failure", "broken", "stalled")
NOTHING = {
    "openai": openai_wire.text(),
    "anthropic": anthropic_wire.message(),
    "gemini": gemini_wire.reply(gemini_wire.chunk([], finish="STOP")),
}
WAYS = ("read", "break", "interrupt", "leave unread", "cancel the reader", "cancel the query")


@dataclass
class Stage:
    """One loop and one server for many examples."""

    protocol: Protocol
    server: ModelServer
    runner: asyncio.Runner
    folder: Path
    examples: int = 0


@pytest.fixture(scope="module", params=PROTOCOLS, ids=str)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    protocol: Protocol = request.param
    with asyncio.Runner() as runner:
        server = protocol.server()
        runner.run(server.__aenter__())
        yield Stage(protocol, server, runner, tmp_path_factory.mktemp("chats"))
        runner.run(server.__aexit__(None, None, None))


class Chat(RuleBasedStateMachine):
    """One conversation, kept as a session, with all that can happen to it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        stage.examples += 1
        self.store = stage.folder / f"{stage.examples}.db"
        self.session = "first"
        self.number = 0
        self.replies: deque[Reply] = deque()
        self.heard: set[str] = set()  # in turns that came to an end in order
        self.edited = False
        self.runtime = Runtime()
        stage.server.on_request = self._reply
        stage.server.faults.clear()

    def _word(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}"

    def _reply(self, _: object) -> Reply:
        if self.replies:
            return self.replies.popleft()
        return self.stage.protocol.text(self._word("answer"))

    def _make(self, kind: str) -> Reply:
        if kind in CALLS:
            return self._calling(kind)
        protocol, first = self.stage.protocol, self._word("begin")
        said = protocol.text(f"{first} ", self._word("end"))
        match kind:
            case "nothing":
                return NOTHING[protocol.name]
            case "pause" if protocol is ANTHROPIC:
                block = anthropic_wire.Text([self._word("pause")])
                return anthropic_wire.message(block, stop_reason="pause_turn")
            case "failure":
                return protocol.failure(500)
            case "broken":
                return after(said, first, Cut())
            case "stalled":
                return after(said, first, Stall())
            case _:
                return said

    def _calling(self, kind: str) -> Reply:
        calls, id = self.stage.protocol.calls, self._word("id")
        match kind:
            case "two calls":
                return calls((id, "add", GOOD), (self._word("id"), "add", GOOD))
            case "unusable call" if self.stage.protocol is not GEMINI:  # which only has objects
                return calls((id, "add", "{"))
            case "unknown call":
                return calls((id, "subtract", GOOD))
            case _:
                return calls((id, "add", GOOD))

    def run(self, doing: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(60):  # a machine may have other things to do
                return await doing

        return self.stage.runner.run(bounded())

    async def _open(self) -> Client:
        model = self.stage.protocol.model(self.stage.server, retry=Retry([]))
        options = AgentOptions(
            "You help.", model, tools=[add], auto_execute_tools=self.auto, max_tool_iterations=3
        )
        return await Client(options, session=self.session, store=self.store).__aenter__()

    @initialize(auto=st.booleans())
    def begin(self, *, auto: bool) -> None:
        self.auto = auto
        self.run(self.runtime.__aenter__())
        self.client = self.run(self._open())

    # What can be done

    @rule(kind=st.sampled_from(KINDS), more=st.sampled_from(KINDS), way=st.sampled_from(WAYS))
    def ask(self, kind: str, more: str, way: str) -> None:
        self._say(self._word("prompt"), kind, more, way)

    @rule(kind=st.sampled_from(KINDS), way=st.sampled_from(WAYS))
    def go_on(self, kind: str, way: str) -> None:
        self._say("", kind, "text", way)

    def _say(self, prompt: str, kind: str, more: str, way: str) -> None:
        stalls = "stalled" in {kind, more}
        way = "interrupt" if way == "read" and stalls else way
        self.replies = deque([self._make(kind), self._make(more)])
        self.run(self._talk(prompt, way))

    async def _talk(self, prompt: str, way: str) -> None:
        found: list[str] = []
        if not way.startswith("cancel"):
            in_order = await self._try(prompt, way, found)
        else:
            async with asyncio.TaskGroup() as group:
                talk = group.create_task(self._try(prompt, way, found))
                if way == "cancel the query":
                    await asyncio.sleep(0)
                    talk.cancel()
            in_order = talk.cancelled() or talk.result()
        if way == "leave unread":
            return
        await self.client.interrupt()
        node = self.client.node
        if in_order and (node is None or node.state is not NodeState.Error):
            self.heard |= set(WORDS.findall("".join(found)))

    async def _try(self, prompt: str, way: str, found: list[str]) -> bool:
        """Ask, and read the answer into *found*; return whether nothing went wrong."""
        try:
            await self.client.query(prompt)
            if way != "leave unread":
                await self._read(found, way)
        except (ModelProviderException, CancellationException):
            return False
        except InvalidValueError:
            assert prompt == ""  # there is nothing to go on with
            return False
        return True

    async def _read(self, found: list[str], way: str) -> None:
        async for block in self.client.receive_messages():
            if isinstance(block, TextBlock):
                found.append(block.text)
            if way == "break":
                break
            if way == "interrupt":
                await self.client.interrupt()
            if way == "cancel the reader" and (task := asyncio.current_task()):
                task.cancel()

    @rule(right=st.booleans(), twice=st.booleans())
    def add_result(self, *, right: bool, twice: bool) -> None:
        calls = [call for message in self.client.history for call in message.get("tool_calls", ())]
        id = calls[-1]["id"] if right and calls else "nobody"
        asked = {call["id"] for call in (self.client.history[-1:] or [{}])[0].get("tool_calls", ())}
        self.edited |= id not in asked
        for _ in range(1 + twice):
            self.run(self.client.add_tool_result(id, self._word("result")))

    @rule(
        at=st.integers(0, 20),
        how=st.sampled_from(["delete", "change", "swap", "repeat", "add", "clear", "cut"]),
        role=st.sampled_from(["user", "assistant", "tool", "system"]),
    )
    def edit(self, at: int, how: str, role: str) -> None:
        messages = self.client.message_history
        at %= len(messages) or 1
        match how:
            case "delete":
                del messages[at : at + 1]
            case "change" if messages:
                messages[at]["content"] = self._word("changed")
            case "swap" if messages:
                messages[0], messages[at] = messages[at], messages[0]
            case "repeat" if messages:
                messages.insert(at, messages[-1])
            case "add":
                messages.insert(at, {"role": role, "content": self._word("added")})
            case "clear":
                self.client.message_history = []
            case _:
                self.client.message_history = messages[at:]
        self.edited = True
        self.heard &= set(self._words(self.client))

    @rule()
    def fork(self) -> None:
        self.session = self._word("session")
        branch = self.run(self.client.fork(self.session))
        self.run(self.client.close())
        self.client = branch

    @rule()
    def restart(self) -> None:
        self.run(self.client.close())
        self.client = self.run(self._open())
        self.edited = False
        self.heard &= set(self._words(self.client))

    # What is true, whatever was done

    @staticmethod
    def _words(client: Client) -> list[str]:
        return WORDS.findall(json.dumps([one.get("content") for one in client.history]))

    @invariant()
    def every_request_was_in_order(self) -> None:
        assert self.stage.server.faults == []

    @invariant()
    def nothing_that_was_said_is_lost(self) -> None:
        assert self.heard <= set(self._words(self.client))

    @invariant()
    def only_the_newest_turn_may_be_under_way(self) -> None:
        running = [one for one in self.runtime.list_toplevel() if not one.state.final]
        assert running in ([], [self.client.node])

    @precondition(lambda self: not self.edited)
    @invariant()
    def what_is_saved_is_what_there_is(self) -> None:
        node = self.client.node
        if node is not None and not node.state.final:
            self.run(self.client.interrupt())
        again = self.run(self._open())
        saved = again.history
        self.run(again.close())
        assert saved == self.client.history

    def teardown(self) -> None:
        if hasattr(self, "client"):
            self.run(self.client.close())
            self.run(self.runtime.__aexit__(None, None, None))


def test_whatever_is_done_to_a_client_its_requests_are_in_order_and_nothing_is_lost(stage: Stage):
    lives = 0

    class OnStage(Chat):
        def __init__(self) -> None:
            nonlocal lives
            lives += 1
            super().__init__(stage)

    run_state_machine_as_test(
        OnStage,
        settings=settings(max_examples=15, stateful_step_count=12, derandomize=True, deadline=None),
    )
    assert lives >= 15
