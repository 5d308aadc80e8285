"""Whatever somebody makes of a history, the next request is one that every provider takes."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from chat_helpers import add, joined
from treefold import AgentOptions, AssistantMessage, Client, TextBlock
from treefold.core.errors import InvalidValueError
from treefold.models import Retry
from wire import ModelServer
from wire.protocols import PROTOCOLS, Protocol

Message = dict[str, Any]

IDS = ("1", "2", "a b", "a_b", "", "None", "treefold-call-1-0", "é" * 90)
NAMES = ("add", "no_such_tool", "", "two words", "né", "9", "x" * 200, "functions.add:0")
OBJECTS = ('{"a":1,"b":2}', "{}", '{"a":NaN}')
ARGUMENTS = (*OBJECTS, "", "[1]", "null", '{"a":', '"\ud800"', "[" * 5000)
THOUGHTS = ("<think>hm</think>", "<think>", "hm</think>\n")
TEXTS = (*THOUGHTS, "", " \n", "hello", "\ud800", "{", '{"error": ')


@dataclass
class Stage:
    """One loop and one server for many examples."""

    protocol: Protocol
    server: ModelServer
    runner: asyncio.Runner

    def send(self, history: list[Message], prompt: str) -> None:
        """Say something after *history*, and see that it is answered."""
        self.runner.run(self._send(history, prompt))

    async def _send(self, history: list[Message], prompt: str) -> None:
        model = self.protocol.model(self.server, retry=Retry([]))
        options = AgentOptions("You help.", model, tools=[add])
        async with asyncio.timeout(60), Client(options) as client:
            client.message_history = history
            try:
                await client.query(prompt)
            except InvalidValueError:
                assert prompt == ""  # and there is nothing to go on with
                return
            answer = [block async for block in client.receive_messages()]
            assert joined(answer) == [TextBlock("Well.")]
            assert client.messages[-1] == AssistantMessage([TextBlock("Well.")])


@pytest.fixture(scope="module", params=PROTOCOLS, ids=str)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    protocol: Protocol = request.param
    with asyncio.Runner() as runner:
        server = protocol.server()
        server.on_request = lambda _: protocol.text("Well.")
        runner.run(server.__aenter__())
        yield Stage(protocol, server, runner)
        runner.run(server.__aexit__(None, None, None))


def call(id: str, name: str, arguments: str) -> Message:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


texts = st.sampled_from(TEXTS) | st.text(max_size=5)
parts = texts.map(lambda text: {"type": "text", "text": text})
contents = st.none() | texts | st.lists(parts, max_size=2)
ids = st.sampled_from(IDS)
calls = st.builds(call, ids, st.sampled_from(NAMES), st.sampled_from(ARGUMENTS))
messages = st.one_of(
    st.fixed_dictionaries({
        "role": st.sampled_from(["user", "system", "developer"]),
        "content": contents,
    }),
    st.fixed_dictionaries(
        {"role": st.just("assistant")},
        optional={"content": contents, "tool_calls": st.none() | st.lists(calls, max_size=3)},
    ),
    st.fixed_dictionaries(
        {"role": st.just("tool"), "content": contents},
        optional={"tool_call_id": ids | st.none() | st.integers(), "name": st.none() | texts},
    ),
)


@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(history=st.lists(messages, max_size=8), prompt=st.sampled_from(["Go on.", ""]))
def test_any_list_of_messages_can_be_gone_on_from(
    stage: Stage, history: list[Message], prompt: str
):
    before = len(stage.server.faults)

    stage.send(history, prompt)

    assert stage.server.faults[before:] == []
