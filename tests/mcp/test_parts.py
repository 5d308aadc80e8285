"""Names, secrets, addresses, messages and schemas of results."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from mcp.shared.message import SessionMessage

from treefold.core.errors import InvalidValueError
from treefold.http_server.address import parse_address
from treefold.mcp.messages import MessageReader
from treefold.mcp.naming import fit_names
from treefold.mcp.result_schema import ResultSchema, Unchecked
from treefold.mcp.secrets import Secrets


@given(st.lists(st.text(max_size=100), unique=True, max_size=20), st.sampled_from(["", "pre"]))
def test_every_name_fits_and_none_is_given_twice(names: list[str], prefix: str):
    fit = fit_names(names, prefix)
    assert list(fit) == names
    assert len(set(fit.values())) == len(names)
    for name in fit.values():
        assert 1 <= len(name) <= 64
        assert name.isascii()
        assert name.replace("-", "_").isidentifier()


def test_a_name_that_fits_is_kept_and_long_ones_stay_apart():
    long = "a" * 100
    fit = fit_names(["get-it", "get it", long, long + "b"])
    assert fit["get-it"] == "get-it"
    assert fit["get it"] == "get_it"
    assert fit[long] != fit[long + "b"]
    assert fit_names([long]) == {long: fit[long]}  # the same each time


def test_secrets_are_scrubbed_wherever_they_are():
    secrets = Secrets.of(
        {"TOKEN": "abcdef", "LONGER": "abcdefgh", "FLAG": "1", "PATH": "/usr/bin"},
        {"Authorization": "Bearer zyxwvu"},
    )
    text = "abcdefgh abcdef zyxwvu Bearer zyxwvu 1 /usr/bin"
    assert secrets.scrub(text) == "*** *** *** *** 1 /usr/bin"
    assert repr(secrets) == "<Secrets ***>"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0", ("127.0.0.1", 0)),
        ("localhost:80", ("localhost", 80)),
        ("127.1.2.3:80", ("127.1.2.3", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_on_this_machine_needs_no_permission(text: str, address: tuple[str, int]):
    assert parse_address(text, allow_remote=False) == address


def test_an_address_for_others_does():
    for text in ("0.0.0.0:80", "[::]:80", "example.org:80", "192.168.0.1:80"):
        with pytest.raises(InvalidValueError, match="--allow-remote"):
            parse_address(text, allow_remote=False)
        assert parse_address(text, allow_remote=True)[1] == 80
    for text in ("", "x", "1:", ":-1", "65536", "80:x"):
        with pytest.raises(InvalidValueError, match="address must be PORT or HOST:PORT"):
            parse_address(text, allow_remote=True)


def read(chunks: Iterable[bytes]) -> tuple[list[object], MessageReader]:
    left = iter(chunks)

    async def more() -> bytes:
        return next(left, b"")

    incoming = MessageReader(more)

    async def collect() -> list[object]:
        return [item.message.model_dump(exclude_unset=True) async for item in incoming]

    return asyncio.run(collect()), incoming


def test_messages_are_the_same_whole_byte_by_byte_and_in_any_parts():
    messages = [
        {"jsonrpc": "2.0", "id": number, "result": {"text": "ü\u2028" * number}}
        for number in range(5)
    ]
    raw = b"hello\r\n\n" + b"".join(
        json.dumps(message, ensure_ascii=False).encode() + b"\r\n" for message in messages
    )
    for size in (len(raw), 1, 7):
        chunks = [raw[start : start + size] for start in range(0, len(raw), size)]
        found, incoming = read(chunks)
        assert found == messages
        assert (incoming.junk, incoming.error) == ("hello", "")


def test_what_is_cut_off_is_no_message():
    found, incoming = read([b'{"jsonrpc": "2.0", "id": 1, "res'])
    assert (found, incoming.has_messages) == ([], False)
    assert incoming.junk.startswith('{"jsonrpc"')


def test_a_line_may_be_long_once_messages_came_and_not_before():
    short = b'{"jsonrpc": "2.0", "method": "x"}\n'
    long = b'{"jsonrpc": "2.0", "id": 1, "result": {"x": "' + b"a" * 3_000_000 + b'"}}\n'
    parts = [long[start : start + 65_536] for start in range(0, len(long), 65_536)]
    assert len(read([short, *parts])[0]) == 2
    found, incoming = read(parts)
    assert (found, incoming.error) == ([], "it wrote a line of more than 1,048,576 bytes")


def test_a_message_is_what_the_sdk_wants():
    async def more() -> bytes:
        return b'{"jsonrpc": "2.0", "method": "x"}\n'

    assert isinstance(asyncio.run(MessageReader(more).receive()), SessionMessage)


SIZES = {"type": "object", "patternProperties": {"^n_": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        ({"type": "integer"}, 1, None),
        ({"type": "integer"}, "1", "'1' is not of type 'integer'"),
        ({"pattern": "^a+$"}, "aaa", None),
        ({"pattern": "^a+$"}, "aab", "'aab' does not match '^a+$'"),
        ({"pattern": "^(a+)+$"}, "a" * 900 + "!", "does not match"),
        ({"not": {"pattern": "^a"}}, "b", None),
        (SIZES, {"n_a": 1, "b": "c"}, None),
        (SIZES, {"n_a": "c"}, "'c' is not of type 'integer'"),
        ({**SIZES, "additionalProperties": False}, {"n_a": 1}, None),
        ({**SIZES, "additionalProperties": False}, {"b": 1}, "'b' is not among its properties"),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "null"}}, {"a": 1}, None),
        ({"additionalProperties": {"type": "null"}}, {"a": 1}, "1 is not of type 'null'"),
        ({"uniqueItems": True}, [1, 2, 1], "has non-unique elements"),
        ({"type": 5}, 1, "the output schema of the tool is invalid: TypeError"),
        ({"$ref": "#/nowhere"}, 1, "is invalid"),
        ({"$ref": "#"}, 1, "is invalid: RecursionError"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "const": 2}, 1, "2 was expected"),
        ({"pattern": "^a"}, "b" * 100_000, "does not match '^a'"),
        ({"pattern": "^(a+)+$"}, "a" * 100_000, None),
    ],
)
def test_results_are_checked_as_far_as_that_is_safe(
    schema: dict[str, Any], value: Any, fault: str | None
):
    found = ResultSchema(schema).fault(value)
    assert found is None if fault is None else fault in str(found)


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        ({"pattern": "^(?:(?:a?){1000}){20}b$"}, "a" * 900, "takes too long for a text of 900"),
        ({"pattern": "^a"}, "b" * 3_000_000, "the pattern '^a' takes too long for a text of 3,000"),
        ({"pattern": "^(?=a)b"}, "b", "the pattern '^(?=a)b' needs an engine that backtracks"),
        ({"not": {"pattern": "^(?=a)b"}}, "b", "needs an engine that backtracks"),
        ({"uniqueItems": True}, [[1]] * 2000, "2,000 items would have to be compared"),
        ({"unevaluatedProperties": False}, {"a": 1}, "unevaluatedProperties is not supported"),
    ],
)
def test_what_cannot_be_checked_safely_is_not_called_checked(
    schema: dict[str, Any], value: Any, why: str
):
    with pytest.raises(Unchecked) as caught:
        ResultSchema(schema).fault(value)
    assert why in str(caught.value)
