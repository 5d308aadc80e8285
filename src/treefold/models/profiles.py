"""Profiles: what a family of models accepts, and how it behaves on the wire.

A profile is data. If it is wrong for a model, create the model with another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from treefold.core.provider import Provider
from treefold.models.chat_templates import BARE_JSON_CALLS

# As many characters of text take as long to process as one value in the arguments of a call.
VALUE_CHARS: Final = 50


class Thinking(StrEnum):
    """How thinking is requested from a model.

    Example:
        >>> from treefold import Provider
        >>> from treefold.models import Thinking, profile_of
        >>> profile_of(Provider.Anthropic, "claude-opus-4-6").thinking is Thinking.ADAPTIVE
        True
    """

    UNASKED = "unasked"  # the request does not mention it
    BUDGET = "budget"  # a number of tokens
    ADAPTIVE = "adaptive"  # the model decides how much


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What to send to a model, and what to expect from it.

    Attributes:
        context_window: the size of the context in tokens, if known.
        max_tokens: the maximum length of a response, if requests have to set it.
        longest_answer: the maximum length of a response that no request can exceed, if known; how
            much of a budget is reserved for a request depends on it.
        max_tokens_field: the name of that field for an OpenAI-compatible server.
        thinking: how thinking is requested.
        thinking_budget: the budget for ``Thinking.BUDGET`` in tokens; None leaves it to the model.
        least_thinking: the smallest budget that the model accepts.
        sampling: whether the model accepts temperature and top_p.
        temperature: the default for sampling.
        headers: sent with each request.
        trained_tools: wire types of the tools it was trained on, by ``Function.trained_as``.
        max_response_bytes: the maximum size of a response on the wire; None for no limit.
        max_response_calls: how many calls the model may ask for in one response; one with more
            fails. None for no limit.
        max_response_chars: the maximum length of a response, whose text, thinking and arguments
            count; each value in a list or object of the arguments counts as 50 characters more,
            because it takes as long to process. Of data that is only sent back, such as signatures
            and results of searches by the server, four characters count as one. None for no limit.
        stream_usage: whether to request the usage of a stream.
        cumulative: whether each chunk repeats all the text so far; None to detect it.
        think_tags: the tags around thinking in the text.
        thinks_first: whether responses begin with thinking without an opening tag.
        replays_thinking: whether later requests repeat the model's thinking.
        calls_functions: whether the model can call functions. If not, a result of a declared type
            is requested by a response schema.
        results_by_schema: whether a result of a declared type is requested by a response schema
            if the agent uses no other functions; None: unless the server belongs to a known
            provider. If the server rejects the schema, the model is offered the function
            ``return_result``.
        calls_in_text: whether a response that consists only of calls written as text, each of an
            offered function, is treated as those calls; None: unless the server belongs to a known
            provider, and with a notice.
        chat_template: the Jinja template that a model in this process is run with; None for the
            one in its file.

    Example:
        >>> from dataclasses import replace
        >>> from treefold.models import OpenAIModel
        >>> model = OpenAIModel("my-model", base_url="ollama")
        >>> mine = replace(model.profile, thinks_first=True)
        >>> OpenAIModel("my-model", base_url="ollama", profile=mine).profile.thinks_first
        True
    """

    context_window: int | None = None
    max_tokens: int | None = None
    longest_answer: int | None = None
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
    max_response_bytes: int | None = 256 * 1024 * 1024
    max_response_calls: int | None = 128
    max_response_chars: int | None = 600_000
    stream_usage: bool = True
    cumulative: bool | None = None
    think_tags: tuple[str, str] = ("<think>", "</think>")
    thinks_first: bool = False
    replays_thinking: bool = True
    calls_functions: bool = True
    results_by_schema: bool | None = None
    calls_in_text: bool | None = None
    chat_template: str | None = None


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
    sampling=False,  # rejected together with thinking
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
_GEMINI_2_5: Final = replace(_GEMINI, longest_answer=65_536)
# OpenAI's SDK documents that the o-series rejects max_tokens; that the same holds for every GPT
# from 5 on, and for temperature and top_p, is inferred from the errors of the first of them.
_REASONING: Final = Profile(max_tokens_field="max_completion_tokens", sampling=False)
_GPT_4O: Final = Profile(context_window=128_000, longest_answer=16_384)

_QWEN_CODER: Final = Profile(
    max_tokens=1024, temperature=0.0, calls_in_text=True, chat_template=BARE_JSON_CALLS
)

# The first pattern that matches a name applies. Names are compared in lower case, without the
# vendor prefix of gateways. Context windows are those of genai-prices where it has one; the longest
# answers are those that the providers publish. A new member of a family gets the profile of the
# newest one that is known here, which is a guess, but for its longest answer.
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
        ("claude-[123]*", replace(_CLAUDE, max_tokens=4_096, trained_tools={})),
        ("claude-instant*", replace(_CLAUDE, max_tokens=4_096, trained_tools={})),
        ("claude-*-4-[6789]*", _CLAUDE_4_6),
        ("claude-*-4*", _CLAUDE_4),
        ("claude-*", _CLAUDE_4_6),
        ("*", _CLAUDE),  # another model behind the same protocol
    ),
    Provider.Gemini: (
        ("gemini-1*", replace(_GEMINI, longest_answer=8_192)),
        ("gemini-2.0*", replace(_GEMINI, longest_answer=8_192)),
        ("gemma*", replace(_GEMINI, context_window=262_144)),
        # For models that do not think, Google rejects requests that mention thinking.
        ("*-image*", _GEMINI),
        ("*-tts*", _GEMINI),
        (
            "gemini-2.5-pro*",
            replace(
                _GEMINI_2_5, thinking=Thinking.BUDGET, thinking_budget=32_768, least_thinking=128
            ),
        ),
        ("gemini-2.5-flash-lite*", replace(_GEMINI_2_5, thinking=Thinking.BUDGET)),
        ("gemini-2.5*", replace(_GEMINI_2_5, thinking=Thinking.BUDGET, thinking_budget=24_576)),
        ("gemini-3*", replace(_GEMINI_2_5, thinking=Thinking.ADAPTIVE)),
        ("*", replace(_GEMINI, thinking=Thinking.ADAPTIVE)),
    ),
    Provider.OpenAI: (
        ("gpt-5*-chat*", replace(_REASONING, context_window=128_000, longest_answer=16_384)),
        ("gpt-5.4-mini*", replace(_REASONING, context_window=400_000)),
        ("gpt-5.4-nano*", replace(_REASONING, context_window=400_000)),
        ("gpt-5.[4-9]*", replace(_REASONING, context_window=1_000_000)),
        ("gpt-5*", replace(_REASONING, context_window=400_000, longest_answer=128_000)),
        ("gpt-[6-9]*", replace(_REASONING, context_window=1_050_000)),
        ("o1-mini*", replace(_REASONING, context_window=128_000, longest_answer=65_536)),
        ("o1-preview*", replace(_REASONING, context_window=128_000, longest_answer=32_768)),
        ("o[134]*", replace(_REASONING, context_window=200_000, longest_answer=100_000)),
        ("o[1-9]*", replace(_REASONING, context_window=200_000)),
        ("codex*", replace(_REASONING, context_window=200_000, longest_answer=100_000)),
        ("gpt-4o*search*", replace(_GPT_4O, sampling=False)),
        ("gpt-4o*", _GPT_4O),
        ("gpt-audio*", _GPT_4O),
        ("gpt-4.1*", Profile(context_window=1_000_000, longest_answer=32_768)),
        ("gpt-4-32k*", Profile(context_window=32_000)),
        ("gpt-4-turbo*", Profile(context_window=128_000, longest_answer=4_096)),
        ("gpt-4-*preview", Profile(context_window=128_000, longest_answer=4_096)),
        ("gpt-4*", Profile(context_window=8_192)),
        ("gpt-3.5*", Profile(context_window=16_385, longest_answer=4_096)),
        ("*gpt-oss*", Profile(context_window=131_072)),
        ("chatgpt*", _GPT_4O),
        ("*deepseek-r1*", Profile(thinks_first=True, replays_thinking=False)),
        ("deepseek-reasoner*", Profile(replays_thinking=False)),
        ("*qwq*", Profile(thinks_first=True)),
        ("*qwen3*thinking*", Profile(thinks_first=True)),
        ("*magistral*", Profile(think_tags=("[THINK]", "[/THINK]"))),
        ("*", Profile()),
    ),
    # Small models tend not to stop. The smallest one needs deterministic sampling, and writes no
    # call that could be made.
    Provider.Local: (
        ("smollm2-135m*", Profile(max_tokens=1024, temperature=0.0, calls_functions=False)),
        ("smollm2*", Profile(max_tokens=1024, temperature=0.0)),
        ("qwen2.5-coder-0.5b*", replace(_QWEN_CODER, calls_functions=False)),
        ("qwen2.5-coder*", _QWEN_CODER),
        ("*", Profile(max_tokens=1024)),
    ),
}


def profile_of(provider: Provider, model: str) -> Profile:
    """Return the profile of the family that *model* belongs to.

    Example:
        >>> from treefold import Provider
        >>> from treefold.models import profile_of
        >>> profile_of(Provider.Anthropic, "claude-opus-4-1").thinking_budget
        64000
    """
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    return next(profile for pattern, profile in _FAMILIES[provider] if fnmatchcase(name, pattern))
