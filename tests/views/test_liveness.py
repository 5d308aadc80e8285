"""Calls whose questions are answered before a process has picked up the answers."""

from importlib.resources import files

from treefold import Question, QuestionKind
from treefold.views.liveness import ANSWERED, with_answers
from view_trees import call, planted


def asks(*ids: str) -> tuple[Question, ...]:
    kind = QuestionKind.Human
    return tuple(Question(id=id, node_id=0, kind=kind, text="Which?") for id in ids)


def test_a_call_without_a_question_left_says_so_and_the_rest_is_as_it_was():
    top = planted(
        call(
            "top",
            "running",
            call("done", "success", end=1),
            call(
                "middle",
                "running",
                call("one", "paused", questions=asks("4-1"), status="Which?"),
                call("other", "paused", questions=asks("5-1", "5-2"), status="Which?"),
            ),
        )
    )
    assert with_answers(top, {"4-1", "5-1", "5-2"}) is top
    seen = with_answers(top, {"5-2"})
    one, other = seen.children[1].children
    assert (one.questions, one.status) == ((), ANSWERED)
    assert ([question.id for question in other.questions], other.status) == (["5-2"], "Which?")
    assert seen.children[0] is top.children[0]


def test_a_deep_tree_is_no_trouble():
    view = call("ask", "paused", questions=asks("1-1"))
    for _ in range(5000):
        view = call("outer", "running", view)
    seen = with_answers(view, ())
    while seen.children:
        seen = seen.children[0]
    assert seen.status == ANSWERED


def test_the_viewer_says_it_in_the_same_words():
    words = files("treefold.views.web") / "assets" / "format.js"
    assert f'export const ANSWERED = "{ANSWERED}";\n' in words.read_text("utf-8")
