"""Calls of an earlier process whose function has changed since they were made."""

from collections.abc import Mapping
from typing import Any, Literal

from treefold.core.agent_events import NoticeGiven
from treefold.core.call_request import Gate
from treefold.core.function import Function, RunContext
from treefold.core.question import QuestionKey, QuestionKind
from treefold.core.record import CallRecord
from treefold.runtime.calls.node import CallNode
from treefold.runtime.durable.function_version import changed_parts, version_of
from treefold.runtime.questions.ask import ask_to_resume
from treefold.runtime.questions.in_doubt import is_cancelled

OnNewCode = Literal["adopt", "pause", "pin"]


class Fork:
    """What is known about a tree as a fork; a part of the tree.

    Attributes:
        is_own: whether it was made in this process, whose functions it runs with.
    """

    is_own = False


def what_changed(record: CallRecord, function: Function) -> str:
    """Return in words how *function* differs from what the call has run with until now.

    Empty if it does not differ, or if a version is not known.
    """
    parts = changed_parts(record.version, version_of(function))
    if not parts:
        return ""
    listed = ", ".join(f"its {part}" for part in parts)
    return f"{function.name} has changed since this call was made ({listed})"


def gate_for_new_code(
    node: CallNode, function: Function, gate: Gate | None, policy: OnNewCode
) -> Gate | None:
    """Return the gate of a call of an earlier process that continues with *function*.

    If that has changed, the call gets a notice, or waits for a person before it passes *gate*.
    """
    change, key = what_changed(node.record, function), _key(function)
    _withdraw_questions(node, key if change else "")
    if not change or is_cancelled(node.record):
        return gate
    if policy == "adopt":
        _adopt(node, function, change)
        return gate

    async def wait(context: RunContext) -> Mapping[str, Any]:
        # A person may have agreed in an earlier process, which died before the call continued.
        if node.record.receive_answer(QuestionKind.Paused, key) is None:
            why = f"{change}: resume continues with the new version, cancel ends it"
            await ask_to_resume(node, why, key)
        _adopt(node, function, change)
        return node.inputs if gate is None else await gate(context)

    return wait


def _key(function: Function) -> str:
    """Return the key of the question; the answer to it counts for this version only."""
    return f"{QuestionKey.NewCode}:{version_of(function)}"


def _adopt(node: CallNode, function: Function, change: str) -> None:
    """Record that the call continues with *function*, and give a notice."""
    kept = "; the prompts stay those that it began with" if node.knows_all else ""
    text = f"{change}: it continues with the new version{kept}"
    node.tree.publish(NoticeGiven(node.id, text, version=version_of(function)))


def _withdraw_questions(node: CallNode, key: str) -> None:
    """Close the questions about other versions than the one with this *key*."""
    for question in tuple((node.record.questions or {}).values()):
        if question.key.partition(":")[0] == QuestionKey.NewCode and question.key != key:
            node.board.close(question.id)
