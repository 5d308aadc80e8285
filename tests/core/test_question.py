"""Which texts answer a question."""

import pytest

from treefold import Question, QuestionKind
from treefold.core.errors import InvalidValueError
from treefold.core.question import Answer


def question(*choices: str, kind: QuestionKind = QuestionKind.Human) -> Question:
    return Question(id="1-1", node_id=1, kind=kind, text="Go on?", choices=choices)


@pytest.mark.parametrize(
    ("choices", "text", "choice"),
    [
        (("yes", "no"), "Y", "yes"),
        (("yes", "no"), "deny", "no"),
        (("Yes", "No"), " allow ", "Yes"),
        (("allow", "deny"), "yes", "allow"),
        (("y", "n", "yes"), "y", "y"),
        (("no", "n"), "n", "n"),
    ],
)
def test_yes_and_no_are_said_in_several_ways(choices: tuple[str, ...], text: str, choice: str):
    assert question(*choices).checked(text) == Answer(choice)


def test_an_approval_is_denied_by_no_and_a_reason():
    asked = question("allow", "deny", kind=QuestionKind.Approval)
    assert asked.checked("no: too dear") == Answer("deny", "too dear")
    assert asked.checked("y", {"amount": 1}) == Answer("allow", args={"amount": 1})


@pytest.mark.parametrize(
    ("choices", "text"),
    [(("red", "blue"), "yes"), (("yes", "allow", "no"), "y"), (("resume", "cancel"), "no")],
)
def test_yes_is_no_answer_to_what_is_not_asked_with_yes_or_no(choices: tuple[str, ...], text: str):
    with pytest.raises(InvalidValueError, match="does not answer the question"):
        question(*choices).checked(text)


def test_without_choices_every_text_is_taken_as_it_is():
    assert question().checked("y") == Answer("y")
