"""What Gemini asks of a request for a generated content."""

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from wire.checks.fault import Fault, tokens_in
from wire.checks.thoughts import Issued, Thought, data_of
from wire.connection import Request
from wire.replies import Reply, failure

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
MODEL = re.compile(r"/models/([^:/]+):")
META = {"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"}
UNCHECKED = {"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}
"""The signatures of calls that no Gemini has made, which Google documents."""


def faults(request: Request) -> Iterator[Fault]:
    """Yield what is wrong with *request*, neighbours of one role as one; signatures apart."""
    body = request.json
    contents = body.get("contents")
    if not contents:
        yield Fault("shape", "* GenerateContentRequest.contents: contents is not specified")
        return
    yield from _tools(body)
    for at, content in enumerate(contents):
        yield from _content(f"GenerateContentRequest.contents[{at}]", content)
    turns = _turns(contents)
    if turns[0][0] != "user":
        yield Fault("roles", "Please ensure that the first content is of the user role.")
    waiting: list[dict[str, Any]] = []
    for role, parts in turns:
        given = [part["functionResponse"] for part in parts if "functionResponse" in part]
        yield from _responses(waiting, given)
        waiting = [part["functionCall"] for part in parts if "functionCall" in part]
        yield from _ids(waiting)
        if waiting and role != "model":
            yield Fault("roles", "Please ensure that function calls are of the model role.")
        if given and role != "user":
            yield Fault("roles", "Please ensure that function responses are of the user role.")
    if waiting:
        yield from _responses(waiting, [])


def _turns(contents: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        (role, [part for content in group for part in content.get("parts") or ()])
        for role, group in groupby(contents, key=_role)
    ]


def _tools(body: dict[str, Any]) -> Iterator[Fault]:
    names: list[str] = []
    for at, tool in enumerate(body.get("tools", ())):
        for number, one in enumerate(tool.get("functionDeclarations", ())):
            spot = f"GenerateContentRequest.tools[{at}].function_declarations[{number}]"
            names.append(one.get("name", ""))
            if not NAME.fullmatch(names[-1]):
                told = (
                    "Invalid function name. Must start with a letter or an underscore. Must be"
                    " alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or"
                    " dashes (-), with a maximum length of 128."
                )
                yield Fault("tools", f"{spot}.name: {told}")
            schema = one.get("parametersJsonSchema", one.get("parameters"))
            if schema is None:
                continue
            if not isinstance(schema, dict) or str(schema.get("type")).lower() != "object":
                yield Fault("tools", f"{spot}.parameters: schema must be of type OBJECT")
    if len(names) != len(set(names)):
        (twice, _), *_ = Counter(names).most_common()
        yield Fault("tools", f"Duplicate function declaration found: {twice}")
    system = body.get("systemInstruction")
    if system is not None and not system.get("parts"):
        spot = "GenerateContentRequest.system_instruction.parts"
        yield Fault("empty", f"* {spot}: contents.parts must not be empty.")


def _content(spot: str, content: dict[str, Any]) -> Iterator[Fault]:
    if _role(content) not in {"user", "model"}:
        yield Fault("roles", f"Please use a valid role: user, model. It is {content['role']!r}.")
    if not content.get("parts"):
        yield Fault("empty", f"* {spot}.parts: contents.parts must not be empty.")
    for number, part in enumerate(content.get("parts") or ()):
        place, data = f"{spot}.parts[{number}]", set(part) - META
        if len(data) != 1:
            told = "required oneof field 'data' must have one initialized field"
            yield Fault("shape", f"* {place}.data: {told}, not {sorted(data)}")
        if part.get("text") == "" and "thoughtSignature" not in part:
            yield Fault("empty", f"* {place}.text: must not be empty.")
        if "functionResponse" in part:
            response = part["functionResponse"]
            if not isinstance(response.get("response"), dict):
                told = "must be an object."
                yield Fault("shape", f"* {place}.function_response.response: {told}")
        for kind in ("functionCall", "functionResponse"):
            if kind in part and not NAME.fullmatch(part[kind].get("name") or ""):
                yield Fault("ids", f"* {place}.{kind}.name: Name cannot be empty or invalid.")


def _responses(waiting: list[dict[str, Any]], given: list[dict[str, Any]]) -> Iterator[Fault]:
    asked, answered = _names(waiting), _names(given)
    if given and not waiting:
        told = "Please ensure that function response turn comes immediately after a function call"
        yield Fault("pairs", f"{told} turn.")
    elif Counter(asked) != Counter(answered):
        told = (
            "Please ensure that the number of function response parts is equal to the number of"
            " function call parts of the function call turn."
        )
        yield Fault("pairs", f"{told} The calls are {asked}, the responses {answered}.")
    known = {(call["id"], call["name"]) for call in waiting if call.get("id")}
    for response in given:
        key = response.get("id")
        if key and (key, response["name"]) not in known:
            told = f"The function response {key!r} answers no function call of that id and name."
            yield Fault("pairs", told)
    if len(keys := [one["id"] for one in given if one.get("id")]) != len(set(keys)):
        yield Fault("pairs", f"Two function responses have one id: {keys}.")


def _ids(calls: list[dict[str, Any]]) -> Iterator[Fault]:
    keys = [call["id"] for call in calls if call.get("id")]
    if len(keys) != len(set(keys)):
        yield Fault("ids", f"Two function calls of one turn have the same id: {keys}.")


def signature_faults(request: Request, issued: Issued) -> Iterator[Fault]:
    """Yield what is wrong with the signatures in *request*.

    Calls of the current turn must have them since Gemini 3, the first of each step.
    """
    contents = request.json["contents"]
    for at, content in enumerate(contents):
        for number, part in enumerate(content["parts"]):
            signature = part.get("thoughtSignature")
            if signature is None or _plain(signature) in UNCHECKED:
                continue
            if ("thoughtSignature", signature) not in issued:
                spot = f"contents[{at}].parts[{number}]"
                yield Fault("thinking", f"Corrupted thought signature. It is in {spot}.")
    if not _needs_signatures(request.path):
        return
    begins = max(at for at, one in enumerate(contents) if _says_something(one))
    for at, content in enumerate(contents[begins:], begins):
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            name = calls[0]["functionCall"]["name"]
            told = (
                "Function call is missing a thought_signature in functionCall parts. This is"
                " required for tools to work correctly, and missing thought_signature may lead to"
                f" degraded model performance. Additional data, function call `default_api:{name}`"
                f" , position {at + 1}. Please refer to"
                " https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
            yield Fault("thinking", told)


def _plain(signature: str) -> str:
    try:
        return base64.b64decode(signature, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return signature


def _needs_signatures(path: str) -> bool:
    found = MODEL.search(path)
    version = re.match(r"gemini-(\d+)", found[1]) if found else None
    return version is not None and int(version[1]) >= 3


def _says_something(content: dict[str, Any]) -> bool:
    """Whether *content* begins a turn: it is the user's, and not only responses."""
    return _role(content) == "user" and any(
        "functionResponse" not in part for part in content["parts"]
    )


def issues(reply: bytes, issued: Issued) -> None:
    """Note in *issued* the signatures in *reply*: they are not bound to what precedes them."""
    if b"thoughtSignature" in reply:
        issued.note(_streamed(reply), b"")


def _streamed(reply: bytes) -> Iterator[Thought]:
    for event in data_of(reply):
        match event:
            case {"candidates": [{"content": {"parts": [*parts]}}, *_]}:
                for part in parts:
                    match part:
                        case {"thoughtSignature": str(signature)}:
                            yield "thoughtSignature", signature
                        case _:
                            pass
            case _:
                pass


def _names(values: list[dict[str, Any]]) -> list[str]:
    return [value["name"] for value in values]


def _role(content: dict[str, Any]) -> str:
    role = content.get("role", "user")
    return "user" if role == "function" else role


def tokens(request: Request) -> int:
    """Return how many tokens *request* takes, by an estimate."""
    body = request.json
    head = body.get("systemInstruction", ""), body.get("tools", [])
    return tokens_in(*head, body["contents"])


def too_long(needed: int, window: int) -> Fault:
    """Return the fault of a request that takes more tokens than there are."""
    told = (
        f"The input token count ({needed}) exceeds the maximum number of tokens allowed ({window})."
    )
    return Fault("window", told)


def refusal(fault: Fault) -> Reply:
    """Return what the provider answers to a request that has *fault*."""
    told = {"code": 400, "message": fault.message, "status": "INVALID_ARGUMENT"}
    return failure(400, {"error": told})
