"""The rules of the providers: each request of a test is checked as the real provider would.

The rules are pure functions of a request, a module for each dialect. What was thought is checked
against what the servers of this process have issued.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from wire.checks import anthropic_messages, gemini_contents, openai_chat
from wire.checks.fault import Fault, Kind
from wire.checks.thoughts import ISSUED, Issued
from wire.connection import Request
from wire.replies import Reply

__all__ = ["ISSUED", "KINDS", "Dialect", "Fault", "Issued", "Kind", "Software", "Terms", "check"]
__all__ += ["dialect_of"]

Software: TypeAlias = Literal["openai", "llama.cpp"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Terms:
    """What one server insists on.

    Attributes:
        window: how many tokens a request may take; None for any number.
        binds_thinking: whether thinking must stand after the prefix that it was issued after.
        software: what answers in the dialect of OpenAI.
        allows: the kinds of faults that it does not mind.
    """

    window: int | None = None
    binds_thinking: bool = True
    software: Software = "openai"
    allows: Collection[Kind] = ()


@dataclass(frozen=True)
class Dialect:
    """How one kind of provider checks requests.

    Attributes:
        faults: all that is wrong with a request, worst first.
        tokens: how many tokens a request takes.
        too_long: the fault of a request with so many tokens, for a window.
        refusal: the response to a request with a fault.
        note: remembers the thinking in a reply.
        dropped: where a request has thinking that it asks to drop.
    """

    name: str
    faults: Callable[[Request, Issued, Terms], Iterator[Fault]]
    tokens: Callable[[Request], int]
    too_long: Callable[[int, int, Terms], Fault]
    refusal: Callable[[Fault], Reply]
    note: Callable[[Request, bytes, Issued], None]
    dropped: Callable[[Request, Issued, Terms], list[str]]


def dialect_of(request: Request) -> Dialect | None:
    """Return the dialect of *request*, or None if it asks no model."""
    path = request.path.partition("?")[0]
    if request.method != "POST":
        return None
    if path.endswith("/chat/completions"):
        return OPENAI
    if path.endswith(("/v1/messages", "/v1/messages/count_tokens")):
        return ANTHROPIC
    if path.endswith((":streamGenerateContent", ":generateContent")):
        return GEMINI
    return None


def check(request: Request, terms: Terms | None = None, issued: Issued = ISSUED) -> Fault | None:
    """Return the fault for which its provider would refuse *request*, if any."""
    dialect, terms = dialect_of(request), terms or Terms()
    if dialect is None:
        return None
    try:
        body = request.json
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return Fault("shape", "We could not parse the JSON body of your request.")
    try:
        found = (fault for fault in dialect.faults(request, issued, terms))
        worst = next((fault for fault in found if fault.kind not in terms.allows), None)
        if worst is not None or terms.window is None or "window" in terms.allows:
            return worst
        needed = dialect.tokens(request)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        # A field is of a type that no rule expects.
        return Fault("shape", f"The request has an unexpected shape: {error!r}.")
    return dialect.too_long(needed, terms.window, terms) if needed > terms.window else None


def _anthropic(request: Request, issued: Issued, terms: Terms) -> Iterator[Fault]:
    yield from anthropic_messages.faults(request)
    binds = terms.binds_thinking
    yield from anthropic_messages.signature_faults(request, issued, binds=binds)


def _gemini(request: Request, issued: Issued, _: Terms) -> Iterator[Fault]:
    yield from gemini_contents.faults(request)
    yield from gemini_contents.signature_faults(request, issued)


def _openai_too_long(needed: int, window: int, terms: Terms) -> Fault:
    if terms.software == "llama.cpp":
        return openai_chat.too_long_for_llama(needed, window)
    return openai_chat.too_long(needed, window)


OPENAI = Dialect(
    "openai",
    lambda request, *_: openai_chat.faults(request),
    openai_chat.tokens,
    _openai_too_long,
    openai_chat.refusal,
    lambda *_: None,
    lambda *_: [],
)
ANTHROPIC = Dialect(
    "anthropic",
    _anthropic,
    anthropic_messages.tokens,
    lambda needed, window, _: anthropic_messages.too_long(needed, window),
    anthropic_messages.refusal,
    anthropic_messages.issues,
    lambda request, issued, terms: anthropic_messages.dropped_thinking(
        request, issued, binds=terms.binds_thinking
    ),
)
GEMINI = Dialect(
    "gemini",
    _gemini,
    gemini_contents.tokens,
    lambda needed, window, _: gemini_contents.too_long(needed, window),
    gemini_contents.refusal,
    lambda _, reply, issued: gemini_contents.issues(reply, issued),
    lambda *_: [],
)
