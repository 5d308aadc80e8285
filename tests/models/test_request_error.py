"""What went wrong, whether to try again, and what to do."""

import email.utils
import time
from typing import Any

import pytest

from treefold.models.decoder import StreamFailedError
from treefold.models.request_error import (
    RequestError,
    from_connection,
    from_response,
    from_stream,
    remedy_for,
)
from treefold.models.retry import Retry
from treefold.models.secret import Secret, public_url
from treefold.models.sse import BrokenStreamError


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 503, 529, 599])
def test_some_statuses_pass(status: int):
    assert RequestError(message="x", status=status).is_transient


@pytest.mark.parametrize("status", [301, 400, 401, 402, 403, 404, 405, 413, 422, 451])
def test_others_do_not(status: int):
    assert not RequestError(message="x", status=status).is_transient


@pytest.mark.parametrize(
    "kind",
    [
        "invalid_request_error", "authentication_error", "permission_error", "not_found_error",
        "request_too_large", "context_length_exceeded", "INVALID_ARGUMENT", "UNAUTHENTICATED",
        "PERMISSION_DENIED", "NOT_FOUND", "FAILED_PRECONDITION", "insufficient_quota",
    ],
)  # fmt: skip
def test_what_is_told_in_a_stream_as_being_for_good_is_not_retried(kind: str):
    assert not from_stream(StreamFailedError(kind, "x")).is_transient


@pytest.mark.parametrize("kind", ["", "overloaded_error", "UNAVAILABLE", "rate_limit_exceeded"])
def test_everything_else_that_is_told_in_a_stream_is_retried(kind: str):
    assert from_stream(StreamFailedError(kind, "x")).is_transient


@pytest.mark.parametrize(
    ("headers", "details", "wait"),
    [
        ({"retry-after": "7"}, [], 7.0),
        ({"retry-after": "0"}, [{"retryDelay": "9s"}], 0.0),
        ({"retry-after": "-3"}, [], 0.0),
        ({"retry-after": "nan"}, [], None),
        ({"retry-after": "inf"}, [], None),
        ({"retry-after": "soon"}, [], None),
        ({"retry-after": email.utils.formatdate(time.time() - 60, usegmt=True)}, [], 0.0),
        ({"retry-after": "Mon, 01 Jan 99999 00:00:00 GMT"}, [], None),
        ({"retry-after-ms": "250"}, [], 0.25),
        ({}, [{"retryDelay": "9s"}], 9.0),
        ({}, [{"retryDelay": "-9s"}], 0.0),
        ({}, [{"retryDelay": "x"}, {"retryDelay": 5}], None),
    ],
)
def test_how_long_to_wait_is_read_from_wherever_it_is_said(
    headers: dict[str, str], details: list[Any], wait: float | None
):
    assert from_response(429, {"error": {"details": details}}, headers).retry_after == wait


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "m"}}, "m"),
        ([{"error": {"message": "m"}}], "m"),
        ({"error": "m"}, "m"),
        ({"message": "m"}, "m"),
        ("m", "m"),
        ([], "HTTP 500"),
        ({}, "HTTP 500"),
        (None, "HTTP 500"),
        ({"error": {"message": "m" * 5000, "code": "k" * 5000}}, "m" * 2000),
    ],
)
def test_a_complaint_is_found_in_whatever_it_is_wrapped(body: Any, message: str):
    error = from_response(500, body, {})
    assert (error.message, str(error)) == (message, message)
    assert len(error.kind) <= 2000


def test_a_redirect_says_where_to_without_its_parameters():
    error = from_response(307, "", {"location": "https://me:pass@other/v1?key=x"})
    assert error.message == "HTTP 307, redirect to https://other/v1"


def test_the_name_of_a_broken_connection_is_that_of_its_cause():
    outer = RuntimeError("timed out")
    outer.__cause__ = ConnectionRefusedError("refused " + "x" * 5000)
    error = from_connection(outer)
    assert error.message.startswith("ConnectionRefusedError: refused x")
    assert len(error.message) < 2100
    assert error.inner is outer


def test_a_key_is_taken_out_of_all_of_an_error():
    secret = Secret("the-secret-key")
    inner = ValueError("told the-secret-key")
    inner.__context__ = KeyError("the-secret-key too")
    error = RequestError(message="a the-secret-key", kind="k the-secret-key", inner=inner)
    clean = error.scrubbed(secret)
    assert (clean.message, clean.kind) == ("a ***", "k ***")
    assert clean.inner is inner
    assert inner.args == ("told ***",)
    assert inner.__context__.args == ("*** too",)


def test_an_exception_that_shows_the_key_all_the_same_is_left_out():
    class StubbornError(Exception):
        def __repr__(self) -> str:
            return "the-secret-key"

    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    secret = Secret("the-secret-key")
    assert RequestError(message="x", inner=StubbornError()).scrubbed(secret).inner is None
    silent = SilentError()
    assert RequestError(message="x", inner=silent).scrubbed(secret).inner is silent


def test_only_an_answer_can_refuse_tools():
    assert RequestError(message="it does not support tools", status=400).refuses_tools
    assert not RequestError(message="it does not support tools").refuses_tools


REMEDIES = [
    ({"kind": "insufficient_quota", "status": 429}, "quota is exhausted"),
    ({"message": "Your credit balance is too low", "status": 400}, "quota is exhausted"),
    ({"status": 429, "retry_after": 900.0}, "wait 900 s, which is more than"),
    ({"status": 400, "retry_after": 900.0}, "rejects this request"),
    ({"inner": BrokenStreamError("x")}, "check that the server at THERE speaks this protocol"),
    ({}, "is the server at THERE running"),
    ({"status": 302}, "redirects are not followed"),
    ({"status": 401}, "set KEY"),
    ({"status": 403}, "set KEY"),
    ({"status": 400, "kind": "API_KEY_INVALID"}, "set KEY"),
    ({"status": 404}, "the model's name and the address THERE"),
    ({"status": 429}, "send fewer at once"),
    ({"status": 413}, "the request is too large"),
    ({"status": 400, "message": "maximum context length"}, "the request is too large"),
    ({"status": 503}, "try again later"),
    ({"status": 400}, "rejects this request"),
]


@pytest.mark.parametrize(("fields", "remedy"), REMEDIES)
def test_each_failure_has_its_remedy(fields: dict[str, Any], remedy: str):
    given: dict[str, Any] = {"message": "x"} | fields
    error = RequestError(**given)
    assert remedy in remedy_for(error, key_name="KEY", address="THERE", longest=300)


def test_a_wait_may_be_as_long_as_the_longest():
    retry = Retry([1.0], longest=10)
    assert retry.wait_before(1, 10.0) == 10.0
    assert retry.wait_before(1, 10.1) is None
    assert retry.wait_before(2, 1.0) is None


def test_keys_are_compared_by_what_they_are():
    assert Secret("one-key") == Secret("one-key")
    assert Secret("one-key") != Secret("other-key")
    assert Secret("one-key") != "one-key"


def test_an_address_is_shown_without_who_and_what():
    assert public_url("https://me:pass@box:1/v1?key=x#y") == "https://box:1/v1"


@pytest.mark.parametrize(
    ("status", "message", "window"),
    [
        (400, "This model's maximum context length is 8192 tokens. However, you ...", 8192),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", 200_000),
        (400, "input and `max_tokens` exceed context limit: 60000 + 150000 > 200000", 200_000),
        (400, "prompt too long; exceeded max context length by 1234 tokens", None),
        (400, "token count (12000) exceeds the maximum number of tokens allowed (8192)", 8192),
        (400, "maximum prompt length is 131072 but the request contains 537812", 131_072),
        (400, "the context length ,,, is exceeded", None),
        (None, "the request exceeds the context window of 4,096 tokens", 4096),
    ],
)
def test_a_request_that_is_too_long_is_told_from_others(
    status: int | None, message: str, window: int | None
):
    error = RequestError(message=message, status=status)
    assert (error.is_too_long, error.context_window) == (True, window)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Rate limit reached: too many tokens per min"),
        (None, "Too many tokens, please wait before trying again."),
        (None, "This request would exceed the maximum rate limit of 40,000 tokens per minute"),
        (500, "context length exceeded"),
    ],
)
def test_a_rate_that_is_too_high_is_no_request_that_is_too_long(status: int | None, message: str):
    assert not RequestError(message=message, status=status).is_too_long


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Rate limit exceeded for this API key"),
        (503, "the authentication service is not available"),
        (400, "Invalid schema for function 'get_api_key'"),
    ],
)
def test_not_all_that_has_to_do_with_a_key_is_about_the_key(status: int, message: str):
    assert not RequestError(message=message, status=status).is_about_key


def test_a_model_that_is_away_for_a_while_has_the_right_name():
    away = RequestError(message="the model is not available right now", status=503)
    assert not away.is_about_model
    assert RequestError(message="the model is not available here", status=400).is_about_model
