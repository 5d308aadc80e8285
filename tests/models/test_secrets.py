"""Keys appear nowhere but in the request."""

import logging
import traceback

import pytest

from ramify.core.errors import InvalidValueError, ModelProviderException
from ramify.core.model import Session
from ramify.core.model_events import AttemptFailed
from ramify.core.transcript import UserText
from ramify.models.openai.model import OpenAIModel
from ramify.models.secret import Secret
from wire import failure
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


async def test_a_key_is_in_no_saved_exchange(protocol: Protocol):
    async with protocol.server(protocol.text("ok")) as server:
        session = protocol.model(server).open()
        await answer(session, UserText("Hi"))
    assert KEY not in repr([exchange.to_dict() for exchange in session.exchanges])


def test_a_token_in_an_address_is_not_shown_and_a_password_is_refused():
    model = OpenAIModel("m", base_url="https://box:8443/v1?token=hunter2")
    assert model.name == "openai:m@https://box:8443/v1"
    assert "hunter2" not in repr(model)
    with pytest.raises(InvalidValueError, match="give a header instead") as caught:
        OpenAIModel("m", base_url="https://me:hunter2@box:8443/v1")
    assert "hunter2" not in str(caught.value)


def test_a_secret_shows_itself_only_when_asked():
    secret = Secret("abcdefgh")
    assert "abcdefgh" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == "abcdefgh"
    assert secret.scrub("x abcdefgh y") == "x *** y"
    assert Secret("a").scrub("banana") == "banana"
