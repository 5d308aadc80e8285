"""`Client`: a conversation of several turns."""

import asyncio
import pickle
from dataclasses import replace

import anthropic
import openai
import pytest
from google.genai import errors as genai_errors

from chat_helpers import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    Assistant,
    Result,
    User,
    add,
    adding,
    after,
    asked,
    call,
    heard,
    options,
    serving,
    text_of,
    told,
    until_failure,
    written,
)
from journeys.roles import REPORTED
from treefold import (
    AgentOptions,
    Client,
    ModelProviderException,
    TextBlock,
    TokenUsage,
    ToolUseBlock,
    query,
)
from treefold.core.errors import UsageError
from treefold.models import Retry
from wire import Close, Cut, Stall, Wait, cut_after, slow_first_byte
from wire.openai_wire import MODEL
from wire.protocols import Protocol

ANY_WORDS = r"\w"


async def test_a_client_is_its_own_context():
    async with serving(OPENAI.text("Hello!")) as server:
        client = Client(options(server))
        async with client as entered:
            assert entered is client
            assert await asked(client, "Hi") == [TextBlock("Hello!")]


async def test_a_client_may_be_used_without_a_context_and_closed():
    async with serving(OPENAI.text("Hello!")) as server:
        client = Client(options(server))
        assert await asked(client, "Hi") == [TextBlock("Hello!")]
        await client.close()
        await client.close()


async def test_each_delta_is_a_block():
    async with serving(OPENAI.text("Hel", "lo", "!")) as server, Client(options(server)) as client:
        assert await asked(client, "Hi") == [TextBlock("Hel"), TextBlock("lo"), TextBlock("!")]


async def test_every_request_has_all_that_was_said_before(protocol: Protocol):
    script = [protocol.text("I am ", "well."), protocol.text("Paris."), protocol.text("Bye.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        for prompt in ("How are you?", "Capital of France?", "Goodbye."):
            await asked(client, prompt)
    said = [
        User("How are you?"),
        Assistant("I am well."),
        User("Capital of France?"),
        Assistant("Paris."),
        User("Goodbye."),
        Assistant("Bye."),
    ]
    assert [told(request, protocol) for request in server.requests] == [
        said[:1],
        said[:3],
        said[:5],
    ]
    assert written(client.history) == said


async def test_every_request_is_streamed_and_has_the_same_settings():
    async with (
        serving(OPENAI.text("one"), OPENAI.text("two")) as server,
        Client(options(server, tools=[add], max_tokens=99, temperature=0.1)) as client,
    ):
        await asked(client, "1")
        await asked(client, "2")
    one, two = (request.json for request in server.requests)
    assert one["stream"] is True
    assert {**one, "messages": None} == {**two, "messages": None}


async def test_query_returns_nothing_and_the_options_can_be_read():
    async with serving(OPENAI.text("ok")) as server:
        given = options(server)
        async with Client(given) as client:
            assert client.options is given
            assert await client.query("Hi") is None
            await heard(client)


async def test_turns_are_counted():
    async with (
        serving(OPENAI.text("one"), OPENAI.text("two")) as server,
        Client(options(server)) as client,
    ):
        assert (client.turn_count, client.turn_metadata) == (0, {"turn_count": 0})
        await asked(client, "1")
        assert (client.turn_count, client.turn_metadata) == (1, {"turn_count": 1})
        await asked(client, "2")
        assert (client.turn_count, client.turn_metadata) == (2, {"turn_count": 2})


async def test_a_turn_with_calls_that_are_made_automatically_counts_once():
    async with (
        serving(OPENAI.calls(adding("a")), OPENAI.text("42")) as server,
        Client(options(server, tools=[add], auto_execute_tools=True)) as client,
    ):
        await asked(client, "25 + 17?")
        assert client.turn_count == 1


async def test_a_turn_counts_if_the_next_prompt_comes_after_its_last_block():
    async with (
        serving(OPENAI.text("one"), OPENAI.text("two")) as server,
        Client(options(server)) as client,
        asyncio.timeout(60),
    ):
        await client.query("1")
        async for _ in client.receive_messages():
            assert client.node is not None
            await client.node
            await client.query("2")
        assert client.turn_count == 1
        assert await heard(client) == [TextBlock("two")]
        assert client.turn_count == 2


async def test_tokens_of_all_turns_are_counted(protocol: Protocol):
    script = [protocol.text("one"), protocol.text("two")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        assert client.usage == TokenUsage()
        await asked(client, "1")
        assert client.usage == REPORTED[protocol.name]
        await asked(client, "2")
        assert client.usage == REPORTED[protocol.name] + REPORTED[protocol.name]


async def test_there_is_nothing_to_receive_before_the_first_query():
    async with serving() as server, Client(options(server)) as client:
        with pytest.raises(UsageError) as caught:
            await heard(client)
    assert isinstance(caught.value, RuntimeError)


async def test_there_is_nothing_to_receive_after_the_end_of_a_turn():
    async with serving(OPENAI.text("ok")) as server, Client(options(server)) as client:
        await asked(client, "Hi")
        assert await heard(client) == []


async def test_two_clients_with_the_same_options_know_nothing_of_each_other():
    async with serving(OPENAI.text("one"), OPENAI.text("two")) as server:
        given = options(server)
        async with Client(given) as first, Client(given) as second:
            await asked(first, "1")
            await asked(second, "2")
    assert told(server.requests[1]) == [User("2")]
    assert written(first.history) == [User("1"), Assistant("one")]
    assert written(second.history) == [User("2"), Assistant("two")]


async def test_many_clients_talk_at_the_same_time():
    async def talk(name: str) -> list[str]:
        async with Client(options(server)) as client:
            return [text_of(await asked(client, f"{name} {turn}")) for turn in range(3)]

    async with serving() as server:
        server.on_request = lambda request: OPENAI.text(
            "to ", request.json["messages"][-1]["content"]
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(talk(f"c{n}")) for n in range(8)]
    assert [task.result() for task in tasks] == [
        [f"to c{n} {turn}" for turn in range(3)] for n in range(8)
    ]


async def test_there_is_nothing_to_continue_before_anything_was_asked_for():
    async with serving(OPENAI.text("ok")) as server, Client(options(server)) as client:
        with pytest.raises(ValueError, match=ANY_WORDS):
            await client.query("")
        await asked(client, "Hi")
        for nothing in ("", " \n"):
            with pytest.raises(ValueError, match="there is nothing to send"):
                await client.query(nothing)
    assert len(server.requests) == 1


async def test_a_failed_request_leaves_nothing_behind_and_can_be_made_again(protocol: Protocol):
    script = [
        protocol.text("One."),
        protocol.failure(500, "out of order"),
        protocol.text("Two."),
    ]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        await asked(client, "1")
        with pytest.raises(ModelProviderException, match="out of order") as caught:
            await asked(client, "2")
        assert caught.value.status == 500
        assert written(client.history) == [User("1"), Assistant("One.")]
        assert text_of(await asked(client, "2")) == "Two."
    assert told(server.requests[2], protocol) == told(server.requests[1], protocol)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
async def test_a_failed_request_is_caught_by_the_class_of_the_sdk_and_by_ours(
    status: int, kind: type[openai.APIStatusError]
):
    replies = [OPENAI.failure(status, "no such luck")] * 2
    async with (
        serving(*replies) as server,
        Client(options(server, api_key="sk-secret")) as client,
    ):
        with pytest.raises(kind) as caught:
            await client.query("Hi")
        with pytest.raises(kind):
            _ = [message async for message in query("Hi", client.options)]
    error = caught.value
    assert isinstance(error, ModelProviderException)
    assert isinstance(error.inner, kind)
    assert (error.status_code, error.response.status_code, error.status) == (status,) * 3
    assert error.body == error.inner.body
    assert str(error.request.url).endswith("/v1/chat/completions")
    assert "no such luck" in error.message
    assert repr(error).startswith("ModelProviderException(")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, kind)
    assert isinstance(again, ModelProviderException)
    assert (str(again), again.status_code, again.body) == (str(error), status, error.body)


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        (ANTHROPIC, anthropic.RateLimitError),
        (GEMINI, genai_errors.ClientError),
    ],
    ids=["anthropic", "gemini"],
)
async def test_so_are_the_exceptions_of_the_other_sdks(protocol: Protocol, kind: type[Exception]):
    async with (
        serving(protocol.failure(429, "slow down"), protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        with pytest.raises(kind) as caught:
            await client.query("Hi")
    assert isinstance(caught.value, ModelProviderException)
    assert caught.value.status == 429


async def test_what_breaks_in_mid_stream_comes_out_of_receive_messages_in_the_classes_of_the_sdk():
    text = OPENAI.text("one ", "two ")
    script = [
        (after(text, "one ", Cut()), openai.APIConnectionError),
        (after(text, "one ", Stall()), openai.APITimeoutError),
        (after(text, "one ", OPENAI.failure_event("it burns"), Close()), openai.APIError),
    ]
    async with (
        serving(*[reply for reply, _ in script]) as server,
        Client(options(server, timeout=0.2, retry=Retry([0, 0]))) as client,
    ):
        for _, kind in script:
            await client.query("Count.")
            found, error = await until_failure(client)
            assert found == [TextBlock("one ")]
            assert isinstance(error, kind)
            assert isinstance(error, ModelProviderException)


async def test_a_request_that_fails_at_once_in_mid_stream_does_not_come_out_of_query():
    broken = replace(OPENAI.text("one "), steps=(OPENAI.failure_event("it burns"),))
    async with serving(broken) as server, Client(options(server)) as client:
        await client.query("Count.")
        found, error = await until_failure(client)
    assert found == []
    assert isinstance(error, openai.APIError)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_refused_connection_is_reported_at_once(host: str):
    async with serving() as server:
        address = f"http://{host}:{server.url.rpartition(':')[2]}/v1"
    async with asyncio.timeout(30), Client(AgentOptions("", MODEL, address)) as client:
        with pytest.raises(openai.APIConnectionError) as caught:
            await client.query("Hi")
    assert isinstance(caught.value, ModelProviderException)
    assert caught.value.attempts == 1
    assert address in str(caught.value)


@pytest.mark.parametrize(("if_refused", "attempts"), [(True, 3), (False, 1)])
async def test_the_options_say_whether_a_refused_connection_is_tried_again(
    attempts: int, *, if_refused: bool
):
    async with serving() as server:
        given = options(server, retry=Retry([0, 0], if_refused=if_refused))
    async with asyncio.timeout(60), Client(given) as client:
        with pytest.raises(openai.APIConnectionError) as caught:
            await client.query("Hi")
    assert isinstance(caught.value, ModelProviderException)
    assert caught.value.attempts == attempts


async def test_a_server_that_is_not_there_is_a_failure_of_the_provider():
    async with serving() as server:
        given = options(server)
    async with asyncio.timeout(60), Client(given) as client:
        with pytest.raises(ModelProviderException) as caught:
            await asked(client, "Hi")
    assert caught.value.inner is not None
    assert caught.value.status is None
    assert client.history == []


async def test_a_request_is_tried_again_with_growing_waits():
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    script = [OPENAI.failure(503), OPENAI.failure(429), OPENAI.text("ok")]
    async with (
        serving(*script) as server,
        Client(options(server, retry=Retry([1, 2, 4], sleep=note))) as client,
    ):
        assert await asked(client, "Hi") == [TextBlock("ok")]
    assert waits == [1, 2]
    assert len({request.body for request in server.requests}) == 1


async def test_what_is_no_passing_trouble_is_not_tried_again():
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    async with (
        serving(OPENAI.failure(400, "what?")) as server,
        Client(options(server, retry=Retry([1, 2, 4], sleep=note))) as client,
    ):
        with pytest.raises(ModelProviderException):
            await asked(client, "Hi")
    assert waits == []


async def test_after_text_was_handed_out_a_broken_connection_is_not_retried():
    reply = OPENAI.text("one ", "two ", "three")
    cut = cut_after(reply, reply.body.index(b"three"))
    async with (
        serving(cut, OPENAI.text("Again.")) as server,
        Client(options(server, retry=Retry([0, 0]))) as client,
    ):
        await client.query("Count.")
        found, error = await until_failure(client)
        assert isinstance(error, ModelProviderException)
        assert text_of(found).startswith("one ")
        assert len(server.requests) == 1
        assert client.history == []
        assert text_of(await asked(client, "Count.")) == "Again."
    assert told(server.requests[1]) == [User("Count.")]


@pytest.mark.parametrize("where", ["first byte", "between two pieces"])
async def test_a_server_that_falls_silent_is_given_up_after_the_timeout(where: str):
    reply = OPENAI.text("one ", "two ")
    silent = slow_first_byte(reply, 60) if where == "first byte" else after(reply, "one ", Stall())
    async with (
        serving(silent, OPENAI.text("ok")) as server,
        Client(options(server, timeout=0.2)) as client,
    ):
        with pytest.raises(ModelProviderException):
            await asked(client, "Hi")
        assert await asked(client, "Hi") == [TextBlock("ok")]


async def test_a_query_while_a_turn_is_under_way_ends_that_turn():
    first = after(OPENAI.text("Once ", "upon"), "Once ", Wait(asyncio.Event()))
    async with (
        serving(first, OPENAI.text("Short.")) as server,
        Client(options(server)) as client,
        asyncio.timeout(60),
    ):
        await client.query("A story, please.")
        blocks = client.receive_messages()
        assert await anext(blocks) == TextBlock("Once ")
        await client.query("Shorter.")
        await server.disconnected.wait()
        assert [block async for block in blocks] == []
        assert await heard(client) == [TextBlock("Short.")]
    assert told(server.requests[1]) == [
        User("A story, please."),
        Assistant("Once "),
        User("Shorter."),
    ]


@pytest.mark.parametrize(("max_turns", "goes_on"), [(1, False), (2, True)])
async def test_one_iteration_goes_through_as_many_prompts_as_max_turns(
    max_turns: int, *, goes_on: bool
):
    script = [OPENAI.calls(adding("a")), OPENAI.text("Done.")]
    async with (
        serving(*script) as server,
        Client(options(server, tools=[add], max_turns=max_turns)) as client,
        asyncio.timeout(60),
    ):
        found = []
        await client.query("25 + 17?")
        async for block in client.receive_messages():
            found.append(block)
            if isinstance(block, ToolUseBlock):
                await client.add_tool_result(block.id, 42, block.name)
                await client.query("Say it in words.")
        rest = await heard(client)
    answer = [TextBlock("Done.")]
    assert (found[1:], rest) == ((answer, []) if goes_on else ([], answer))
    assert told(server.requests[1]) == [
        User("25 + 17?"),
        Assistant("", (call("a", "add", a=25, b=17),)),
        Result("a", 42),
        User("Say it in words."),
    ]


async def test_options_can_be_changed_without_changing_a_client_that_has_others():
    async with serving(OPENAI.text("one"), OPENAI.text("two")) as server:
        given = options(server)
        warmer = replace(given, temperature=1.0)
        async with Client(given) as first, Client(warmer) as second:
            await asked(first, "1")
            await asked(second, "2")
    assert [request.json["temperature"] for request in server.requests] == [0.7, 1.0]
