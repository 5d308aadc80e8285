"""Checks results against the output schemas of servers, which may be made to take for ever.

Python's ``re`` backtracks, and holds all threads meanwhile; so patterns are matched by the engine
of pydantic, which does not. What takes too long all the same is accepted unchecked, with a notice.
"""

import math
import re
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, Final, cast

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from treefold.core.parameter import JsonSchema
from treefold.core.truncation import truncated_repr

Errors = Iterator[Any] | None
Keyword = Callable[[Any, Any, Any, Any], Errors]

_SECONDS: Final = 0.25  # of processor time, for one result
# Characters of a pattern times its repetitions times characters of the text, as its time grows.
_MOST_STEPS: Final = 5_000_000
_LONGEST_SHOWN: Final = 100  # characters of a pattern
_MOST_UNIQUE: Final = 1000  # items, each of which is compared with all others
_COUNT: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")


class Unchecked(Exception):  # noqa: N818 - it is no error
    """Whether the result fits cannot be found out, or not soon enough; it says why."""


class ResultSchema:
    """The output schema of one tool."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._validator: Any = None
        self._until = 0.0

    def fault(self, value: Any) -> str | None:
        """Return why *value* does not fit; None if it does.

        Raises:
            Unchecked: that was not found out.
        """
        try:
            if self._validator is None:
                self._validator = self._make()
            self._until = time.thread_time() + _SECONDS
            for error in self._validator.iter_errors(value):
                return f"it does not fit the output schema of the tool: {error.message}"
        except Unchecked:
            raise
        # An invalid schema may lead to anything.
        except Exception as error:  # noqa: BLE001
            return f"the output schema of the tool is invalid: {type(error).__name__}: {error}"
        return None

    def _make(self) -> Any:
        from jsonschema import validators  # noqa: PLC0415 - slow, and only for results
        from referencing import Registry  # noqa: PLC0415 - the same

        making: Any = validators
        kind = making.validator_for(self._schema, making.Draft202012Validator)
        known: dict[str, Keyword] = {
            **kind.VALIDATORS,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "uniqueItems": partial(_unique_items, kind.VALIDATORS["uniqueItems"]),
            "unevaluatedItems": _unevaluated,
            "unevaluatedProperties": _unevaluated,
        }
        timed = {name: self._timed(keyword) for name, keyword in known.items()}
        # An empty registry: nothing is fetched from elsewhere.
        nothing = Registry[Any]()
        return making.extend(kind, timed)(self._schema, registry=nothing)

    def _timed(self, keyword: Keyword) -> Keyword:
        def check(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
            if time.thread_time() > self._until:
                raise Unchecked(f"that takes longer than {_SECONDS:g} s")
            return keyword(validator, value, instance, schema)

        return check


# What takes the place of the keywords that use ``re``, or may take for ever


def _pattern(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
    if isinstance(instance, str) and not matches(value, instance):
        yield _fault(f"{instance!r} does not match {value!r}")


def _pattern_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
    for pattern, below in value.items():
        for name, one in _properties(instance).items():
            if matches(pattern, name):
                yield from validator.descend(one, below, path=name)


def _additional_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
    patterns = schema.get("patternProperties", {})
    for name, one in _properties(instance).items():
        if name in schema.get("properties", {}) or any(matches(p, name) for p in patterns):
            continue
        if value is False:
            yield _fault(f"{name!r} is not among its properties")
        else:
            yield from validator.descend(one, value, path=name)


def _unique_items(
    default: Keyword, validator: Any, value: Any, instance: Any, schema: Any
) -> Errors:
    count = len(cast("list[Any]", instance)) if isinstance(instance, list) else 0
    if count > _MOST_UNIQUE:
        raise Unchecked(f"{count:,} items would have to be compared with each other")
    return default(validator, value, instance, schema)


def _unevaluated(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
    raise Unchecked("unevaluatedItems or unevaluatedProperties is not supported")


def _properties(instance: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", instance) if isinstance(instance, dict) else {}


def _fault(message: str) -> Any:
    from jsonschema import ValidationError as Fault  # noqa: PLC0415 - slow, and only for results

    return Fault(message)


def matches(pattern: str, text: str) -> bool:
    """Whether *pattern* is found in *text*, in a time that is linear in both.

    Raises:
        Unchecked: they are too long, or the pattern needs an engine that backtracks.
    """
    shown = truncated_repr(pattern, _LONGEST_SHOWN)
    if _steps(pattern) * len(text) > _MOST_STEPS:
        message = f"the pattern {shown} takes too long for a text of {len(text):,} characters"
        raise Unchecked(message)
    matcher = _matcher(pattern)
    if matcher is None:
        raise Unchecked(f"the pattern {shown} needs an engine that backtracks")
    try:
        matcher.validate_python(text)
    except ValidationError as error:
        if error.errors()[0]["type"] == "string_pattern_mismatch":
            return False
        raise Unchecked("a text has half of a surrogate pair") from None
    return True


def _steps(pattern: str) -> int:
    """Return the size of *pattern* with its repetitions."""
    counts = [max(1, int(most or least)) for least, most in _COUNT.findall(pattern)]
    return len(pattern) * math.prod(counts)


@lru_cache(maxsize=100)
def _matcher(pattern: str) -> SchemaValidator | None:
    if _steps(pattern) > _MOST_STEPS // 1000:  # it would be expanded, even for an empty text
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None
