"""Each recorded stream is decoded right: whole, byte by byte, and cut off anywhere."""

import json
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from treefold.core.code import CodeFunction
from treefold.core.function import RunContext
from treefold.core.model import ModelSettings
from treefold.core.model_events import (
    ModelEvent,
    Noticed,
    TextDelta,
    TextWasThinking,
    ThinkingDelta,
    ToolUseDelta,
)
from treefold.core.transcript import ModelText, ThinkingPart, ToolUse, TranscriptPart
from treefold.models.anthropic.dialect import AnthropicDialect
from treefold.models.decoder import RefusedError, StreamFailedError
from treefold.models.dialect import Dialect
from treefold.models.gemini.dialect import GeminiDialect
from treefold.models.openai.dialect import OpenAIDialect
from treefold.models.profiles import Profile
from treefold.models.sse import BrokenStreamError

CORPUS = Path(__file__).parent / "corpus"
CASES = sorted(path.relative_to(CORPUS).with_suffix("") for path in CORPUS.glob("*/*.json"))
DIALECTS = {"openai": OpenAIDialect, "anthropic": AnthropicDialect, "gemini": GeminiDialect}


@dataclass
class Case:
    """A stream, and what is in it."""

    protocol: str
    data: bytes
    expected: dict[str, Any]

    @classmethod
    def load(cls, name: Path) -> "Case":
        path = CORPUS / name
        return cls(
            name.parts[0],
            path.with_suffix(".sse").read_bytes(),
            json.loads(path.with_suffix(".json").read_text()),
        )

    def dialect(self) -> Dialect:
        profile = replace(Profile(), **self.expected.get("profile", {}))
        functions = [function_called(name) for name in self.expected["functions"]]
        return DIALECTS[self.protocol]("model", profile, "", functions, ModelSettings())


@cache
def function_called(name: str) -> CodeFunction:
    return CodeFunction(name=name, callable=nothing)


def nothing(ctx: RunContext) -> None: ...


@dataclass
class Found:
    """What a decoder made of a stream."""

    text: str = ""
    thinking: str = ""
    arguments: dict[int, str] = field(default_factory=dict)
    parts: list[TranscriptPart] = field(default_factory=list)
    blocks: list[Any] = field(default_factory=list)
    finish: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    broken: bool = False
    error: tuple[str, str] | None = None

    def take(self, event: ModelEvent) -> None:
        match event:
            case TextDelta():
                assert event.text
                self.text += event.text
            case ThinkingDelta():
                self.thinking += event.text
            case TextWasThinking():
                self.thinking, self.text = self.text, ""
            case ToolUseDelta():
                self.arguments[event.index] = self.arguments.get(event.index, "") + event.arguments
            case Noticed():
                assert "not JSON" in event.text or "function calls as text" in event.text
            case _:
                raise AssertionError(f"a decoder does not say {event}")


def decode(case: Case, portions: list[bytes]) -> Found:
    dialect = case.dialect()
    decoder = dialect.decoder()
    found = Found()
    try:
        for portion in portions:
            for event in decoder.feed(portion):
                found.take(event)
            if decoder.is_done:
                break
        for event in decoder.end():
            found.take(event)
        response = decoder.response()
        found.finish = response.finish.value
        if response.message is not None:
            found.parts = dialect.read(response.message, 1, ())
            message = json.loads(response.message)
            found.blocks = message.get("content") or message.get("parts") or []
    except BrokenStreamError:
        found.broken = True
    except StreamFailedError as error:
        found.error = (error.kind, str(error))
    except RefusedError as refusal:
        found.finish = "refused"
        found.text = refusal.text
    usage = decoder.usage
    found.usage = {
        "input": usage.input,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write + usage.cache_write_1h,
        "reasoning": usage.reasoning,
        "output": usage.output,
    }
    return found


def check(case: Case, found: Found) -> None:
    expected = case.expected
    assert found.broken == expected["broken"]
    if expected["error"]:
        assert found.error is not None
        assert found.error[1] == expected["error"]["message"]
    else:
        assert found.error is None
    assert found.usage == (expected["usage"] or dict.fromkeys(found.usage, 0))
    assert found.finish == expected["finish"]
    assert found.text == expected["text"]
    if expected["finish"] in {None, "refused"}:
        return
    assert found.thinking.strip() == expected["thinking"].strip()
    check_parts(expected, found.parts)
    if "blocks" in expected:
        assert found.blocks == expected["blocks"]


def check_parts(expected: dict[str, Any], parts: list[TranscriptPart]) -> None:
    assert "".join(p.text for p in parts if isinstance(p, ModelText)) == expected["text"]
    thinking = "".join(p.text for p in parts if isinstance(p, ThinkingPart))
    assert thinking == expected["thinking"]
    calls = [part for part in parts if isinstance(part, ToolUse)]
    assert len(calls) == len(expected["calls"])
    for call, wanted in zip(calls, expected["calls"], strict=True):
        if wanted["id"]:
            assert call.id == wanted["id"]
        assert call.id
        if "fault" in wanted:
            assert call.fault
            assert call.args == {}
            assert wanted["fault"] == "name" or wanted["raw"].strip() in call.fault
        else:
            assert call == ToolUse(call.id, wanted["name"], wanted["args"])
    assert len({call.id for call in calls}) == len(calls)


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return Case.load(request.param)


def test_a_stream_is_decoded_whole(case: Case):
    check(case, decode(case, [case.data]))


def test_a_stream_is_decoded_byte_by_byte(case: Case):
    check(case, decode(case, [case.data[i : i + 1] for i in range(len(case.data))]))


def test_a_stream_that_is_cut_off_is_broken_or_complete_and_never_wrong(case: Case):
    whole = decode(case, [case.data])
    for end in range(0, len(case.data), max(1, len(case.data) // 40)):
        cut = decode(case, [case.data[:end]])
        if cut.finish is not None:
            assert (cut.finish, cut.text, cut.thinking) == (
                whole.finish,
                whole.text,
                whole.thinking,
            )
            assert [type(part) for part in cut.parts] == [type(part) for part in whole.parts]
        else:
            assert cut.broken or cut.error
            assert cut.parts == []
