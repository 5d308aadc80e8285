"""What Gemini asks of a request for a generated content."""

import re
from collections import Counter
from itertools import groupby
from typing import Any

from wire.connection import Request

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
META = {"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"}


def check_request(request: Request) -> None:
    """Raise AssertionError when Gemini would refuse *request*, neighbours of one role as one."""
    body = request.json
    contents = body.get("contents")
    assert contents, "The request has no contents."
    _check_tools(body)
    for at, content in enumerate(contents):
        _check_content(at, content)
    turns = [
        (role, [part for content in group for part in content["parts"]])
        for role, group in groupby(contents, key=_role)
    ]
    assert turns[0][0] == "user", "The first content is not of the user."
    waiting: list[dict[str, Any]] = []
    for role, parts in turns:
        given = [part["functionResponse"] for part in parts if "functionResponse" in part]
        _check_responses(waiting, given)
        waiting = [part["functionCall"] for part in parts if "functionCall" in part]
        assert role == "model" or not waiting, "A functionCall is in a content of the user."
        assert role == "user" or not given, "A functionResponse is in a content of the model."
    assert not waiting, f"The contents end without a functionResponse for {_names(waiting)}."


def _check_tools(body: dict[str, Any]) -> None:
    declared = [
        one["name"]
        for tool in body.get("tools", ())
        for one in tool.get("functionDeclarations", ())
    ]
    for name in declared:
        assert NAME.fullmatch(name), f"No function can have the name {name!r}."
    assert len(declared) == len(set(declared)), f"Two functions have the same name: {declared}."
    system = body.get("systemInstruction")
    assert system is None or system.get("parts"), "systemInstruction has no parts."


def _check_content(at: int, content: dict[str, Any]) -> None:
    assert _role(content) in {"user", "model"}, f"contents[{at}] has the role {content['role']!r}."
    assert content.get("parts"), f"contents[{at}] has no parts."
    for number, part in enumerate(content["parts"]):
        spot, data = f"contents[{at}].parts[{number}]", set(part) - META
        assert len(data) == 1, f"{spot} has {sorted(data)} where it has to have one thing."
        empty = part.get("text") == "" and "thoughtSignature" not in part
        assert not empty, f"{spot} is an empty text."
        if "functionResponse" in part:
            response = part["functionResponse"].get("response")
            assert isinstance(response, dict), f"{spot} has a response that is no object."


def _check_responses(waiting: list[dict[str, Any]], given: list[dict[str, Any]]) -> None:
    assert Counter(_names(waiting)) == Counter(_names(given)), (
        f"After the functionCalls {_names(waiting)} come the functionResponses {_names(given)}."
    )
    asked = {(call["id"], call["name"]) for call in waiting if call.get("id")}
    for response in given:
        key = response.get("id")
        known = not key or (key, response["name"]) in asked
        assert known, f"The functionResponse {key!r} answers no functionCall of that id and name."


def _names(values: list[dict[str, Any]]) -> list[str]:
    return [value["name"] for value in values]


def _role(content: dict[str, Any]) -> str:
    role = content.get("role", "user")
    return "user" if role == "function" else role
