"""Forms on a terminal: the expected answer in words, and prompts for one field after another."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from treefold.core.answer_form import FormField, faults_in, fields_of, form_in_words, read_value
from treefold.core.question import Question
from treefold.views.text import printable

Ask = Callable[[str], str | None]  # prints a prompt, and returns the line; None to give up


def form_lines(question: Question) -> list[str]:
    """Return what a question with a form asks for, a line for each field."""
    form = question.form
    if form is None:
        return []
    fields = fields_of(form)
    if not fields:
        return [printable(form_in_words(form, form))]
    return [f"{printable(field.name)}: {_hint(field, form)}" for field in fields]


def fill_in(question: Question, ask: Ask, say: Callable[[str], None]) -> str | None:
    """Ask for each field of a question with a form; return the answer as JSON, None to give up.

    A whole answer as JSON may be given at the first prompt.
    """
    form = question.form or {}
    known = _default(question)
    values: dict[str, Any] = {}
    for field in fields_of(form):
        shown = known.get(field.name, field.default)
        offered = "" if shown is None else f" [{printable(json.dumps(shown, ensure_ascii=False))}]"
        while True:
            line = ask(f"{printable(field.name)}{offered}: ")
            if line is None:
                return None
            text = line.strip()
            if not values and text.startswith("{"):
                return text
            if not text and (shown is not None or not field.is_required):
                if shown is not None:
                    values[field.name] = shown
                break
            if not text:
                say(f'{printable(field.name)} is missing; "" is an empty text')
                continue
            value = read_value(field.form, text, form)
            if not (faults := list(faults_in(field.form, value, form, field.name))):
                values[field.name] = value
                break
            say(printable("; ".join(faults)))
    return json.dumps(values, ensure_ascii=False)


def from_assignments(question: Question, words: Sequence[str]) -> str | None:
    """Return the answer that words such as ``city=Rome`` give as JSON, None if they give none."""
    form = question.form or {}
    fields = {field.name: field for field in fields_of(form)}
    parts = [word.partition("=") for word in words]
    if not parts or not all(name in fields and sign for name, sign, _ in parts):
        return None
    given = {name: read_value(fields[name].form, text, form) for name, _, text in parts}
    return json.dumps(_default(question) | given, ensure_ascii=False)


def _default(question: Question) -> dict[str, Any]:
    """Return the fields of the default of a question."""
    found: Any = None
    if question.default is not None:
        # It may have been redacted.
        with suppress(ValueError):
            found = json.loads(question.default)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _hint(field: FormField, form: Mapping[str, Any]) -> str:
    words = form_in_words(field.form, form)
    if field.default is not None:
        words += f", or {json.dumps(field.default, ensure_ascii=False)} by default"
    elif not field.is_required:
        words += ", optional"
    return printable(words)
