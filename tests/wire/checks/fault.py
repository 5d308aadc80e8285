"""What is wrong with a request, and how much of a window it takes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal[
    # A field is missing, or has a value of the wrong type.
    "shape",
    # A role is unknown, or the roles do not come in the order that the provider demands.
    "roles",
    # A message, or a text in it, is empty.
    "empty",
    # A call is not followed by exactly its results, or a result has no call.
    "pairs",
    # The id of a call has characters or a length that the provider refuses, or is used twice.
    "ids",
    # The definition of a tool, or its name.
    "tools",
    # Options that contradict each other, or the rest of the request.
    "options",
    # A thinking block or a signature is missing, was altered, or is of another provider.
    "thinking",
    # What stood before a thinking block when it was made is not what stands before it now.
    "binding",
    # The request is longer than the window.
    "window",
]


@dataclass(frozen=True)
class Fault:
    """Why a provider refuses a request.

    Attributes:
        message: in the provider's words.
        param: the parameter that OpenAI names.
        code: the code that OpenAI gives.
        more: further fields of the error.
    """

    kind: Kind
    message: str
    param: str | None = None
    code: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


CHARACTERS = 4
"""How many characters of JSON count as one token."""


def tokens_in(*values: Any) -> int:
    """Return how many tokens *values* take, by an estimate: four characters of their JSON each."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return (len(text) + CHARACTERS - 1) // CHARACTERS
