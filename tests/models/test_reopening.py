"""A conversation that has begun is continued by the model of any provider."""

from collections.abc import Sequence

import pytest

from support import add
from treefold import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.core.model import Session
from treefold.core.transcript import TranscriptPart
from treefold.core.window import Window
from treefold.models import ModelSettings
from treefold.models.gemini.model import GeminiModel
from treefold.models.reopening import reopen
from wire import gemini_wire
from wire.protocols import PROTOCOLS, Protocol, answer

ADD, SURE = UserText("Add."), UserText("Sure?")
OPENAI, ANTHROPIC, GEMINI = PROTOCOLS


def window_of(*sessions: tuple[Session, int]) -> Window:
    """Return the window of these exchanges, each of which the session with it made."""
    exchanges = [session.exchanges[number] for session, number in sessions]
    parts = [session.parts(number) for session, number in sessions]
    asked = [part for part in parts[-1] if isinstance(part, ToolUse)]
    return Window(exchanges, asked, parts)


def spoken(parts: Sequence[TranscriptPart]) -> list[TranscriptPart]:
    return [part for part in parts if not isinstance(part, ThinkingPart)]


async def asking(protocol: Protocol) -> Session:
    """Return a session whose last response asks for a call."""
    # Anthropic would not accept the other id.
    id = "toolu_1" if protocol is ANTHROPIC else "functions.add:0"
    async with protocol.server(protocol.calls((id, "add", '{"a":1,"b":2}'))) as server:
        session = protocol.model(server).open("", [add])
        await answer(session, ADD)
    return session


@pytest.mark.parametrize("thinking", [None, 0])
@pytest.mark.parametrize("other", PROTOCOLS, ids=str)
async def test_a_model_takes_over_the_calls_that_another_one_asked_for(
    protocol: Protocol, other: Protocol, thinking: int | None
):
    session = await asking(protocol)
    window, settings = window_of((session, 0)), ModelSettings(thinking=thinking)
    async with other.server(other.text("3."), other.text("Yes.")) as server:
        taken = reopen(other.model(server), "", [add], settings, window)
        assert taken.pending == session.pending
        three = ToolResult(session.pending[0].id, "3")
        await answer(taken, three)
        assert (taken.pending, taken.parts(1)) == ([], [three, ModelText("3.")])
        # Opened again, with any settings, it repeats what was sent.
        window = window_of((session, 0), (taken, 1))
        again = reopen(other.model(server), "", [add], ModelSettings(thinking=0), window)
        await answer(again, SURE)
    first, second = [other.messages(request.body) for request in server.requests]
    assert second.startswith(f"{first},")


@pytest.mark.parametrize("other", PROTOCOLS, ids=str)
async def test_a_conversation_that_returns_to_its_provider_is_as_it_was(
    protocol: Protocol, other: Protocol
):
    session = await asking(protocol)
    async with other.server(other.text("3.")) as server:
        taken = reopen(other.model(server), "", [add], ModelSettings(), window_of((session, 0)))
        three = ToolResult(session.pending[0].id, "3")
        await answer(taken, three)
    window = window_of((session, 0), (taken, 1))
    async with protocol.server(protocol.text("Yes.")) as server:
        back = reopen(protocol.model(server), "", [add], ModelSettings(), window)
        await answer(back, SURE)
    exchange, [request] = session.exchanges[0], server.requests
    own = ",".join([*exchange.sent, *exchange.received])
    assert own in protocol.messages(request.body)
    assert spoken(back.transcript) == [
        ADD,
        *session.pending,
        three,
        ModelText("3."),
        SURE,
        ModelText("Yes."),
    ]


@pytest.mark.parametrize("other", PROTOCOLS, ids=str)
async def test_a_call_that_could_not_be_parsed_is_taken_over_with_its_result(other: Protocol):
    script = [OPENAI.calls(("c1", "add", "{a:1")), OPENAI.text("Oh.")]
    async with OPENAI.server(*script) as server:
        session = OPENAI.model(server).open("", [add])
        await answer(session, ADD)
        await answer(session, ToolResult("c1", "not JSON", is_error=True))
    window = window_of((session, 0), (session, 1))
    async with other.server(other.text("Yes.")) as server:
        taken = reopen(other.model(server), "", [add], ModelSettings(), window)
        await answer(taken, SURE)
    assert [part for part in taken.transcript if isinstance(part, ToolResult)]


async def test_calls_without_ids_keep_those_that_they_got_when_less_is_sent():
    made = gemini_wire.call("add", {"a": 1, "b": 2})
    asks = gemini_wire.reply(gemini_wire.chunk([made], "STOP", gemini_wire.USAGE))
    async with GEMINI.server(GEMINI.text("Hi."), asks, GEMINI.text("3.")) as server:
        session = GEMINI.model(server).open("", [add])
        await answer(session, UserText("Hello."))
        await answer(session, ADD)
        window = window_of((session, 1))
        less = reopen(GEMINI.model(server), "", [add], ModelSettings(), window)
        assert less.pending == session.pending
        await answer(less, ToolResult(session.pending[0].id, "3"))
    assert less.parts(1) == [ToolResult(session.pending[0].id, "3"), ModelText("3.")]


@pytest.mark.parametrize("other", PROTOCOLS, ids=str)
async def test_results_in_another_order_than_their_calls_stay_with_them_when_it_returns(
    protocol: Protocol, other: Protocol
):
    id = "toolu_" if protocol is ANTHROPIC else "functions.add:"
    calls = [(f"{id}{n}", "add", f'{{"a":{n},"b":1}}') for n in (1, 2)]
    async with protocol.server(protocol.calls(*calls)) as server:
        session = protocol.model(server).open("", [add])
        await answer(session, ADD)
    first, second = [ToolResult(call.id, f"{call.args['a']} + 1") for call in session.pending]
    async with other.server(other.text("Done.")) as server:
        taken = reopen(other.model(server), "", [add], ModelSettings(), window_of((session, 0)))
        await answer(taken, SURE, second, first)
        assert taken.parts(1) == [first, second, SURE, ModelText("Done.")]
    window = window_of((session, 0), (taken, 1))
    async with protocol.server() as server:
        back = reopen(protocol.model(server), "", [add], ModelSettings(), window)
    results = [part for part in back.transcript if isinstance(part, ToolResult)]
    assert results == [first, second]


async def called_twice(protocol: Protocol, id: str) -> Session:
    """Return a session in which two responses have asked for a call with one id."""
    calls = protocol.calls((id, "add", '{"a":1,"b":2}'))
    async with protocol.server(calls, protocol.text("3."), calls) as server:
        session = protocol.model(server).open("", [add])
        await answer(session, ADD)
        await answer(session, ToolResult(id, "3"))
        await answer(session, ADD)
    return session


@pytest.mark.parametrize(
    ("first", "id"),
    [(OPENAI, "call_0"), (OPENAI, "functions.add:0"), (GEMINI, "call_0"), (GEMINI, "x" * 100)],
)
@pytest.mark.parametrize("other", PROTOCOLS, ids=str)
async def test_ids_that_a_provider_does_not_accept_are_changed_for_it(
    first: Protocol, other: Protocol, id: str
):
    session, settings = await called_twice(first, id), ModelSettings(thinking=0)
    window = window_of((session, 0), (session, 1), (session, 2))
    async with other.server(other.text("3."), other.text("Yes."), other.text("No.")) as server:
        taken = reopen(other.model(server), "", [add], settings, window)
        await answer(taken, ToolResult(id, "3"))
        # Opened again, with all or with less of it, the calls still have their results.
        for begin in (0, 2):
            made = [(session, 0), (session, 1), (session, 2), (taken, 3)][begin:]
            again = reopen(other.model(server), "", [add], settings, window_of(*made))
            await answer(again, SURE)


async def test_gemini_takes_over_calls_without_a_signature_since_version_3():
    session = await called_twice(OPENAI, "call_0")
    window = window_of((session, 2))
    async with GEMINI.server(GEMINI.text("3.")) as server:
        model = GeminiModel("gemini-3-pro", api_key="k", base_url=server.url)
        taken = reopen(model, "", [add], ModelSettings(), window)
        await answer(taken, ToolResult("call_0", "3"))
    assert taken.parts(1)[-1] == ModelText("3.")
