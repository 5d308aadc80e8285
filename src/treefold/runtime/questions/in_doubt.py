"""Calls that an earlier process began: in doubt, paused, or cancelled before it ended."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from treefold.core.call_request import Concluded, Gate
from treefold.core.errors import InDoubtError
from treefold.core.frames import short_arguments
from treefold.core.function import RunContext
from treefold.core.plain import explained
from treefold.core.question import (
    CANCEL,
    FAIL,
    REPORT,
    RESUME,
    RETRY,
    USE,
    QuestionKey,
    QuestionKind,
    ends_pause,
)
from treefold.core.record import CallRecord
from treefold.core.value_codec import has_unserializable
from treefold.core.verdict import Verdict
from treefold.runtime.calls.node import CallNode
from treefold.runtime.questions.ask import ask, ask_to_resume


def gate_after_crash(node: CallNode, gate: Gate | None) -> Gate | None:
    """Return the gate of a call that an earlier process may have begun; replaces *gate*.

    A call that was cancelled while paused is cancelled, a call in doubt becomes a question, and a
    paused call asks its questions again.
    """
    record = node.record
    if is_cancelled(record):
        return lambda _: _cancel(node)
    asked = (record.questions or {}).values()
    # Whether its function has changed is found out anew.
    paused = [
        q
        for q in asked
        if q.kind is QuestionKind.Paused and q.key.partition(":")[0] != QuestionKey.NewCode
    ]
    if would_be_in_doubt(node):
        return lambda _: _decide(node)
    if node.function.is_agent and record.conversation.response is not None:
        # The agent makes the calls of its last response again, and asks about failed ones itself.
        paused = [q for q in paused if REPORT not in q.choices]
    if not paused:
        return gate

    async def wait(context: RunContext) -> Mapping[str, Any]:
        for question in paused:
            if is_cancelled(record):
                await _cancel(node)
            if question.id not in (record.questions or ()):  # answered meanwhile
                continue
            others = [c for c in question.choices if c not in {RESUME, CANCEL}]
            await ask_to_resume(node, question.text, question.key, others)
        return node.inputs if gate is None else await gate(context)

    return wait


def approval_again(node: CallNode) -> Gate:
    """Return the gate of a top-level call whose own gate had not allowed it before a crash.

    Who would decide is gone with the process, so that a person does.
    """
    record = node.record
    # An open question, or one that was answered in the meantime.
    asked = [*(record.questions or {}).values(), *(question for question, _ in record.answers)]
    asked = [question for question in asked if question.kind is QuestionKind.Approval]
    call = f"{node.function.name}({short_arguments(node.inputs)})"
    text = asked[0].text if asked else f"may {call}, asked for before a crash, be called?"
    return Verdict(node.function.name, None, text)


def would_be_in_doubt(node: CallNode) -> bool:
    """Whether *node* has begun, and must not run again without a decision."""
    record, function = node.record, node.function
    begun = record.started is not None and record.allowed
    return begun and not function.is_agent and (not function.may_repeat or _unknown(node))


def is_cancelled(record: CallRecord) -> bool:
    """Whether a person cancelled it while it was paused, and its process ended before it did."""
    return any(ends_pause(question, answer) for question, answer in record.answers)


async def _cancel(node: CallNode) -> Mapping[str, Any]:
    node.cancel_on_loop("cancelled while it was paused")
    await asyncio.sleep(0)  # raises CancelledError
    return node.inputs


def _unknown(node: CallNode) -> bool:
    """Whether its arguments cannot be restored from the journal."""
    return has_unserializable(dict(node.inputs))


async def _decide(node: CallNode) -> Mapping[str, Any]:
    """Ask a person for the outcome of the call, or whether to call it again."""
    text = (
        f"{node.function.name}({short_arguments(node.inputs)}) had begun and was cut off,"
        " and nobody knows whether it was done; retry calls it again, 'use: RESULT' goes on with"
        " that result, 'fail: WHY' tells its caller"
    )
    fault = ""
    while True:
        kind, key = QuestionKind.InDoubt, QuestionKey.InDoubt
        answer = await ask(node, kind, text + fault, (RETRY, USE, FAIL), key)
        if answer.text == FAIL:
            raise InDoubtError(answer.reason or f"nobody knows whether {node.function.name} ran")
        if answer.text == USE:
            try:
                raise Concluded(_read(node.function.output_type, answer.reason))
            except ValueError as error:
                fault = f" ({error})"
                continue
        if not _unknown(node):
            return node.inputs
        fault = " (it cannot be called again: its arguments had no JSON form)"


def _read(annotation: Any, text: str) -> Any:
    """Return *text* as a value of the type *annotation*.

    Raises:
        ValueError: it is not valid for that type.
    """
    from pydantic import PydanticUserError, TypeAdapter, ValidationError  # noqa: PLC0415 - slow

    if annotation is str:
        return text
    try:
        value = json.loads(text)
    except (RecursionError, ValueError):
        value = text
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise ValueError(explained(error, "that is no such result")) from None
    except (PydanticUserError, NameError, TypeError):  # not an annotation that can be checked
        return value
