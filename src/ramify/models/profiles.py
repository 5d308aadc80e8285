"""What a family of models accepts, and how it behaves on the wire.

A profile is data; one that is wrong for a model is replaced by giving another to the model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from ramify.core.provider import Provider


class Thinking(StrEnum):
    """How a model is told to think.

    Example:
        >>> from ramify import Provider
        >>> from ramify.models import Thinking, profile_of
        >>> profile_of(Provider.Anthropic, "claude-opus-4-6").thinking is Thinking.ADAPTIVE
        True
    """

    UNASKED = "unasked"  # it does, or does not; it is not told
    BUDGET = "budget"  # in tokens
    ADAPTIVE = "adaptive"  # it decides how much


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What to send to a model, and what to expect from it.

    Attributes:
        context_window: tokens that it can take in, if known.
        max_tokens: the longest response, if it has to be told.
        max_tokens_field: the name that an OpenAI-compatible server has for that.
        thinking: how it is told to think.
        thinking_budget: tokens for thinking, if by budget and not left to itself.
        least_thinking: the smallest budget that it takes.
        sampling: whether it takes temperature and top_p.
        temperature: for sampling, unless the settings say another.
        headers: sent with each request.
        trained_tools: wire types of the tools it was trained on, by ``Function.trained_as``.
        stream_usage: whether to ask for the usage of a stream.
        cumulative: whether each chunk repeats all the text so far; None to find out.
        think_tags: between which it thinks aloud.
        thinks_first: whether it thinks from the start without an opening tag.
        replays_thinking: whether its thinking is sent back to it.

    Example:
        >>> from dataclasses import replace
        >>> from ramify.models import OpenAIModel
        >>> model = OpenAIModel("my-model", base_url="ollama")
        >>> mine = replace(model.profile, thinks_first=True)
        >>> OpenAIModel("my-model", base_url="ollama", profile=mine).profile.thinks_first
        True
    """

    context_window: int | None = None
    max_tokens: int | None = None
    max_tokens_field: str = "max_tokens"
    thinking: Thinking = Thinking.UNASKED
    thinking_budget: int | None = None
    least_thinking: int = 0
    sampling: bool = True
    temperature: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    trained_tools: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, Mapping[str, str]]
    )
    stream_usage: bool = True
    cumulative: bool | None = None
    think_tags: tuple[str, str] = ("<think>", "</think>")
    thinks_first: bool = False
    replays_thinking: bool = True


_INTERLEAVED: Final = {"anthropic-beta": "interleaved-thinking-2025-05-14"}
_BASH: Final = {"type": "bash_20250124", "name": "bash"}
_EDITOR_4: Final = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}
_EDITOR_3: Final = {"type": "text_editor_20250124", "name": "str_replace_editor"}

_CLAUDE: Final = Profile(
    context_window=200_000,
    max_tokens=32_000,
    least_thinking=1_024,
    trained_tools={"bash": _BASH, "text_editor": _EDITOR_4},
)
_CLAUDE_4: Final = replace(
    _CLAUDE,
    thinking=Thinking.BUDGET,
    thinking_budget=64_000,
    sampling=False,  # refused together with thinking
    headers=_INTERLEAVED,
)
_CLAUDE_4_6: Final = replace(
    _CLAUDE_4,
    thinking=Thinking.ADAPTIVE,
    thinking_budget=None,
    headers={},
    context_window=1_000_000,
)
_GEMINI: Final = Profile(context_window=1_048_576)
_GPT_5: Final = Profile(
    context_window=400_000, max_tokens_field="max_completion_tokens", sampling=False
)

# The first pattern that fits a name counts; names are compared in lower case.
_FAMILIES: Final[Mapping[Provider, tuple[tuple[str, Profile], ...]]] = {
    Provider.Anthropic: (
        (
            "claude-3-7*",
            replace(
                _CLAUDE,
                thinking=Thinking.BUDGET,
                trained_tools={"bash": _BASH, "text_editor": _EDITOR_3},
            ),
        ),
        ("claude-3*", replace(_CLAUDE, max_tokens=4_096, trained_tools={})),
        ("claude-*-4-[6789]*", _CLAUDE_4_6),
        ("claude-*-4*", _CLAUDE_4),
        ("claude-*-[56789]*", _CLAUDE_4_6),
        ("claude-mythos*", _CLAUDE_4_6),
        ("*", _CLAUDE),
    ),
    Provider.Gemini: (
        ("gemini-1*", _GEMINI),
        ("gemini-2.0*", _GEMINI),
        (
            "gemini-2.5-pro*",
            replace(_GEMINI, thinking=Thinking.BUDGET, thinking_budget=32_768, least_thinking=128),
        ),
        ("gemini-2.5-flash-lite*", replace(_GEMINI, thinking=Thinking.BUDGET)),
        ("gemini-2.5*", replace(_GEMINI, thinking=Thinking.BUDGET, thinking_budget=24_576)),
        ("*", replace(_GEMINI, thinking=Thinking.ADAPTIVE)),
    ),
    Provider.OpenAI: (
        ("gpt-5*", _GPT_5),
        ("o[1-9]*", replace(_GPT_5, context_window=200_000)),
        ("gpt-4o*", Profile(context_window=128_000)),
        ("gpt-4.1*", Profile(context_window=1_047_576)),
        ("*deepseek-r1*", Profile(thinks_first=True, replays_thinking=False)),
        ("deepseek-reasoner*", Profile(replays_thinking=False)),
        ("*qwq*", Profile(thinks_first=True)),
        ("*qwen3*thinking*", Profile(thinks_first=True)),
        ("*magistral*", Profile(think_tags=("[THINK]", "[/THINK]"))),
        ("*", Profile()),
    ),
    Provider.Local: (  # small models like to go on, and the smallest must not be creative
        ("smollm2*", Profile(max_tokens=1024, temperature=0.0)),
        ("*", Profile(max_tokens=1024)),
    ),
}


def profile_of(provider: Provider, model: str) -> Profile:
    """Return the profile of the family that *model* belongs to.

    Example:
        >>> from ramify import Provider
        >>> from ramify.models import profile_of
        >>> profile_of(Provider.Anthropic, "claude-opus-4-1").thinking_budget
        64000
    """
    name = model.lower()
    return next(profile for pattern, profile in _FAMILIES[provider] if fnmatchcase(name, pattern))
