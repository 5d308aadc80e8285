"""Keys appear nowhere but in the request."""

import logging
import traceback
from typing import Any

import pytest

from treefold.core.errors import InvalidValueError, ModelProviderException
from treefold.core.model import Session
from treefold.core.model_events import AttemptFailed
from treefold.core.transcript import UserText
from treefold.models.openai.model import OpenAIModel
from treefold.models.profiles import Profile
from treefold.models.secret import Secret
from wire import Close, ModelServer, Reply, failure
from wire.protocols import KEY, Protocol, answer, noting


async def collect(session: Session, events: list[object]) -> None:
    async for event in session.send(UserText("Hi")):
        events.append(event)  # noqa: PERF401 - those before it fails are wanted, too


async def test_a_server_that_repeats_the_key_does_not_get_it_into_errors_events_or_logs(
    protocol: Protocol, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    told = {"error": {"message": f"Bad key {KEY}.", "code": KEY, "details": [{"reason": KEY}]}}
    async with protocol.server(failure(500, told), failure(401, told)) as server:
        model = protocol.model(server, retry=noting([]))
        session = model.open()
        events: list[object] = []
        with pytest.raises(ModelProviderException) as caught:
            await collect(session, events)
        assert any(isinstance(event, AttemptFailed) for event in events)
        assert any(KEY in value for value in server.requests[0].headers.values())

    error: BaseException | None = caught.value
    shown = [repr(events), repr(model), repr(vars(model)), repr(session), caplog.text]
    shown.append("".join(traceback.format_exception(caught.value)))
    while error is not None:
        shown += [repr(error), str(error), repr(error.args), repr(vars(error))]
        error = error.__cause__ or error.__context__
    assert [text for text in shown if KEY in text] == []
    assert "Bad key ***." in str(caught.value)


@pytest.mark.parametrize("status", [401, 500])
async def test_the_request_of_the_providers_exception_has_no_key(protocol: Protocol, status: int):
    complaint = failure(status, {"error": {"message": "No."}}, {"x-echo": KEY})
    async with ModelServer([complaint]) as server:
        model = protocol.model(server, retry=noting([], ()))
        with pytest.raises(ModelProviderException) as caught:
            await answer(model.open(), UserText("Hi"))
    inner: Any = caught.value.inner
    assert inner is not None
    if protocol.name != "gemini":  # Google's has neither
        assert inner.request is inner.response.request
        assert inner.response.json() == {"error": {"message": "No."}}
        assert str(inner.request.url).startswith("http://127.0.0.1:")
        headers = {**inner.request.headers, **inner.response.headers}
        assert {"user-agent", "x-echo"} <= headers.keys()
        assert KEY not in repr(headers)
        assert inner.request.content == b""
        wrapped = inner.__cause__
        assert wrapped is None or KEY not in repr(dict(wrapped.request.headers))


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "X-Custom-Token"])
async def test_credentials_in_headers_of_ones_own_are_not_in_the_exception(name: str):
    profile = Profile(headers={name: "Basic aHVudGVyMg=="})
    async with ModelServer([failure(400, "No.")]) as server:
        model = OpenAIModel("m", base_url=f"{server.url}/v1?token=hunter2", profile=profile)
        with pytest.raises(ModelProviderException) as caught:
            await answer(model.open(), UserText("Hi"))
        assert server.requests[0].headers[name.lower()] == "Basic aHVudGVyMg=="
    inner: Any = caught.value.inner
    assert "aHVudGVyMg" not in repr(dict(inner.request.headers))
    assert "hunter2" not in str(inner.request.url)


async def test_a_malformed_answer_keeps_the_exception_without_the_key(protocol: Protocol):
    malformed = Reply(before=(b"HTTP/1.1 two hundred OK\r\nx: y\r\n\r\n", Close()))
    async with ModelServer([malformed]) as server:
        with pytest.raises(ModelProviderException) as caught:
            await answer(protocol.model(server, retry=noting([], ())).open(), UserText("x"))
    inner: Any = caught.value.inner
    if protocol.name != "gemini":  # the other SDKs wrap it
        inner = inner.__cause__
    assert str(inner.request_info.url).startswith("http://127.0.0.1:")
    assert KEY not in repr(inner.request_info.headers)
    assert KEY not in repr(inner.args)


async def test_a_key_is_in_no_saved_exchange(protocol: Protocol):
    async with protocol.server(protocol.text("ok")) as server:
        session = protocol.model(server).open()
        await answer(session, UserText("Hi"))
    assert KEY not in repr([exchange.to_dict() for exchange in session.exchanges])


def test_a_token_in_an_address_is_not_shown_and_a_password_is_refused():
    model = OpenAIModel("m", base_url="https://box:8443/v1?token=hunter2")
    assert model.name == "openai:m@https://box:8443/v1"
    assert "hunter2" not in repr(model)
    with pytest.raises(InvalidValueError, match="set a header instead") as caught:
        OpenAIModel("m", base_url="https://me:hunter2@box:8443/v1")
    assert "hunter2" not in str(caught.value)


def test_a_secret_shows_itself_only_when_asked():
    secret = Secret("abcdefgh")
    assert "abcdefgh" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == "abcdefgh"
    assert secret.scrub("x abcdefgh y") == "x *** y"
    assert Secret("a").scrub("banana") == "banana"
