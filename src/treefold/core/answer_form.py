"""Answers that have a form: the JSON Schema of a question, and what a person gives for it.

The process in which a person answers may lack the type that the program asked for, so answers are
checked against the schema there; the program checks them again, with the type (``AnswerType``).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from typing import Any, Final, NamedTuple, cast

from treefold.core.errors import InvalidValueError
from treefold.core.truncation import truncated_repr

Form = Mapping[str, Any]

_WORDS: Final = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
_KINDS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "string": ("text", lambda value: isinstance(value, str)),
    "integer": ("a whole number", lambda value: _is_number(value) and value == int(value)),
    "number": ("a number", lambda value: _is_number(value)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "null": ("null", lambda value: value is None),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
}
_FORMATS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "date": ("a date such as 2026-05-31", date.fromisoformat),
    "date-time": ("a time such as 2026-05-31T09:30:00Z", datetime.fromisoformat),
    "time": ("a time such as 09:30:00", time.fromisoformat),
}
_BOUNDS: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = {
    "minimum": ("at least", lambda value, bound: value >= bound),
    "maximum": ("at most", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("more than", lambda value, bound: value > bound),
    "exclusiveMaximum": ("less than", lambda value, bound: value < bound),
}
_LENGTHS: Final[Mapping[str, tuple[str, Callable[[int, int], bool]]]] = {
    "minLength": ("at least {} characters", lambda length, bound: length >= bound),
    "maxLength": ("at most {} characters", lambda length, bound: length <= bound),
    "minItems": ("at least {} items", lambda length, bound: length >= bound),
    "maxItems": ("at most {} items", lambda length, bound: length <= bound),
}


class FormField(NamedTuple):
    """One field of a form: a property of the object that the answer has to be."""

    name: str
    form: Form
    is_required: bool
    default: Any  # None: it has none


def fields_of(form: Form) -> list[FormField]:
    """Return the fields of a form that asks for an object; none if it asks for something else."""
    found = resolved(form, form)
    properties: Mapping[str, Form] = found.get("properties") or {}
    required = found.get("required") or ()
    return [
        FormField(name, resolved(inner, form), name in required, inner.get("default"))
        for name, inner in properties.items()
    ]


def resolved(form: Form, whole: Form) -> Form:
    """Return *form*, a part of *whole*, with the definition that it refers to."""
    for reference in [form.get("$ref"), *(one.get("$ref") for one in form.get("allOf") or ())]:
        if isinstance(reference, str):
            name = reference.rpartition("/")[2]
            definitions: Mapping[str, Form] = whole.get("$defs") or {}
            definition = definitions.get(name) or {}
            kept = {key: value for key, value in form.items() if key not in {"$ref", "allOf"}}
            return {**definition, **kept}
    return form


def form_in_words(form: Form, whole: Form) -> str:
    """Return what *form*, a part of *whole*, asks for."""
    form = resolved(form, whole)
    if choices := form.get("anyOf") or form.get("oneOf"):
        meant = [form_in_words(one, whole) for one in choices if not _is_null(one)]
        return " or ".join(dict.fromkeys(meant)) or "null"
    if "const" in form or "enum" in form:
        return _listed([form["const"]] if "const" in form else form["enum"])
    if (known := _FORMATS.get(form.get("format", ""))) is not None:
        return known[0]
    kind = form.get("type")
    if kind == "array":
        inner: Form = form.get("items") or {}
        return f"a list as JSON, each {form_in_words(inner, whole)}" if inner else "a list as JSON"
    if kind == "object":
        fields = ", ".join(field.name for field in fields_of({**form, "$defs": whole.get("$defs")}))
        return f"an object as JSON: {fields}" if fields else "an object as JSON"
    return _KINDS[kind][0] if kind in _KINDS else "JSON"


def read_value(form: Form, text: str, whole: Form | None = None) -> Any:
    """Return the value that a person means by *text*: JSON, or a plain word, number or date."""
    whole = form if whole is None else whole
    candidates: list[Any] = []
    with suppress(ValueError, RecursionError):
        candidates.append(json.loads(text))
    candidates.append(text)
    if (word := text.strip().casefold()) in _WORDS:
        candidates.append(_WORDS[word])
    for value in candidates:
        if next(faults_in(form, value, whole), None) is None:
            return value
    return candidates[0]


def checked_value(form: Form, value: Any, what: str) -> str:
    """Return *value*, or what a person means by it if it is a text, as JSON text.

    Raises:
        InvalidValueError: it does not fit the form; the message begins with *what*.
    """
    value = read_value(form, value) if isinstance(value, str) else value
    if faults := list(faults_in(form, value, form)):
        raise InvalidValueError(f"{what}: {'; '.join(faults)}")
    return json.dumps(value, ensure_ascii=False)


def faults_in(form: Form, value: Any, whole: Form, place: str = "") -> Iterator[str]:
    """Yield in words how *value* does not fit *form*, as far as the schema says.

    Patterns are left to the program that asks: a pattern may take for ever.
    """
    form = resolved(form, whole)
    if choices := form.get("anyOf") or form.get("oneOf"):
        yield from _faults_in_choices(choices, value, whole, place)
        return
    if "const" in form or "enum" in form:
        allowed = [form["const"]] if "const" in form else form["enum"]
        if not any(type(value) is type(one) and value == one for one in allowed):
            yield _fault(place, f"must be {_listed(allowed)}", value)
        return
    kinds = [form["type"]] if isinstance(form.get("type"), str) else form.get("type") or ()
    known = [_KINDS[kind] for kind in kinds if kind in _KINDS]
    if known and not any(fits(value) for _, fits in known):
        yield _fault(place, f"must be {' or '.join(words for words, _ in known)}", value)
        return
    yield from _faults_in_scalar(form, value, place)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        yield from _faults_in_items(form, items, whole, place)
    elif isinstance(value, dict):
        yield from _faults_in_object(form, cast("dict[str, Any]", value), whole, place)


def _faults_in_choices(
    choices: Sequence[Form], value: Any, whole: Form, place: str
) -> Iterator[str]:
    found = [list(faults_in(choice, value, whole, place)) for choice in choices]
    if all(found):
        # Those of the choice that fits best; null is what is left out, and seldom meant.
        meant = [one for one, choice in zip(found, choices, strict=True) if not _is_null(choice)]
        yield from min(meant or found, key=len)


def _faults_in_scalar(form: Form, value: Any, place: str) -> Iterator[str]:
    if isinstance(value, str) and (known := _FORMATS.get(form.get("format", ""))) is not None:
        words, read = known
        try:
            read(value)
        except ValueError:
            yield _fault(place, f"must be {words}", value)
    if _is_number(value):
        for keyword, (words, fits) in _BOUNDS.items():
            if keyword in form and not fits(value, form[keyword]):
                yield _fault(place, f"must be {words} {form[keyword]}", value)
    if isinstance(value, str | list):
        length = len(cast("Sequence[Any]", value))
        for keyword, (words, is_long_enough) in _LENGTHS.items():
            counted = keyword.endswith("Items") == isinstance(value, list)
            if keyword in form and counted and not is_long_enough(length, form[keyword]):
                yield _fault(place, f"must have {words.format(form[keyword])}", value)


def _faults_in_items(form: Form, items: list[Any], whole: Form, place: str) -> Iterator[str]:
    first: Sequence[Form] = form.get("prefixItems") or ()
    rest: Any = form.get("items")
    for number, item in enumerate(items):
        inner = first[number] if number < len(first) else rest
        if isinstance(inner, Mapping):
            yield from faults_in(cast("Form", inner), item, whole, f"{place}[{number}]")


def _faults_in_object(form: Form, value: dict[str, Any], whole: Form, place: str) -> Iterator[str]:
    properties: Mapping[str, Any] = form.get("properties") or {}
    rest: Any = form.get("additionalProperties", True)
    for name in form.get("required") or ():
        if name not in value:
            yield f"{_inside(place, name)} is missing"
    for name, item in value.items():
        inner = properties.get(name, rest)
        if inner is False:
            yield f"{_inside(place, name)} is not asked for; known: {', '.join(properties)}"
        elif isinstance(inner, Mapping):
            yield from faults_in(cast("Form", inner), item, whole, _inside(place, name))


def _fault(place: str, what: str, value: Any) -> str:
    return f"{place or 'it'} {what}, got {truncated_repr(value)}"


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _listed(values: Sequence[Any]) -> str:
    return " or ".join(json.dumps(value, ensure_ascii=False) for value in values)


def _is_null(form: Form) -> bool:
    return form.get("type") == "null"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
