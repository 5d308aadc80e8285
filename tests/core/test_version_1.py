"""What events of body version 1 say in words is read into fields."""

from treefold import NodeState, QuestionKind, ToolUse, UserText
from treefold.core.agent_events import NoticeGiven, RequestSent
from treefold.core.events import CallEnded, CallRequested, Failure, Stop, StopCause
from treefold.core.question import QuestionKey, key_of
from treefold.core.version_1 import Upgrade, key_of_question

LATE = Failure("CallTimeoutError", "slow (node 4.1): it took longer than 0.05 s")


def called() -> Upgrade:
    """Return what has seen a call of *boss*, and below it one of *slow*."""
    upgrade = Upgrade()
    upgrade(CallRequested(1, None, 4, 4, "boss", {}))
    upgrade(CallRequested(2, 1, 1, 1, "slow", {}))
    return upgrade


def test_a_call_that_timed_out_is_told_from_its_caller_that_failed_with_the_same_error():
    upgrade = called()
    slow = upgrade(CallEnded(2, NodeState.Error, 1.0, None, LATE))
    boss = upgrade(CallEnded(1, NodeState.Error, 1.0, None, LATE))
    stop = Stop(StopCause.Timeout, "it took longer than 0.05 s", "4.1")
    assert slow == CallEnded(2, NodeState.Error, 1.0, None, LATE, stop)
    assert boss == CallEnded(1, NodeState.Error, 1.0, None, LATE)


def test_a_cancelled_call_has_its_reason_and_its_cause():
    for reason, cause in (
        ("enough (of it)", StopCause.Cancelled),
        ("its caller stopped waiting for it", StopCause.Abandoned),
        ("boss did not ask for it again", StopCause.Unclaimed),
    ):
        said = Failure("CancellationException", f"slow (node 4.1) was cancelled: {reason}")
        ended = called()(CallEnded(2, NodeState.Canceled, 1.0, None, said))
        assert ended == CallEnded(
            2, NodeState.Canceled, 1.0, None, said, Stop(cause, reason, "4.1")
        )


def test_a_notice_names_the_indexes_of_the_calls_that_were_not_made_again():
    text = "these calls of an earlier process were not asked for again: a (node 1.2), b (node 1.13)"
    assert called()(NoticeGiven(1, text)) == NoticeGiven(1, text, (2, 13))
    assert called()(NoticeGiven(1, "see node 1.2")) == NoticeGiven(1, "see node 1.2")


def test_what_a_model_wrote_instead_of_arguments_is_kept_apart_from_the_fault():
    old = ToolUse("1", "add", {}, "the arguments are not a JSON object: {a")
    sent = called()(RequestSent(1, 1.0, (UserText("Hi"), old)))
    assert sent == RequestSent(1, 1.0, (UserText("Hi"), ToolUse.unreadable("1", "add", "{a")))


def test_questions_of_treefold_are_known_by_their_endings_and_others_by_their_text():
    assert key_of_question(QuestionKind.InDoubt, "pay() had begun") == QuestionKey.InDoubt
    hold = "enough; resume lets its next request or call go on"
    assert key_of_question(QuestionKind.Paused, hold) == QuestionKey.Hold
    assert key_of_question(QuestionKind.Human, hold) == key_of(hold)
