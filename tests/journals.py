"""Entries for a journal, and nothing but what a store has to know of them."""

from ramify import NodeState, Question, QuestionKind
from ramify.stores import Call, Entry


def asked(
    node: int, *, tree: int = 0, parent: int = 0, key: str = "", index: int = 0, source: int = 0,
    inherited: int = 0,
) -> Entry:  # fmt: skip
    """The first entry of a node; of a top-level one, if no *tree* is given."""
    return Entry(
        tree=tree or node,
        node=node,
        number=1,
        kind="CallRequested",
        body="{}",
        call=Call(
            parent=parent, key=key or f"call {node}", index=index or node, function="f",
            source=source, inherited=inherited,
        ),
        state=NodeState.Waiting,
    )  # fmt: skip


def ended(
    node: int, number: int = 2, *, tree: int = 0, state: NodeState = NodeState.Success
) -> Entry:
    return Entry(
        tree=tree or node, node=node, number=number, kind="CallEnded", body="{}", state=state
    )


def told(node: int, number: int, text: str = "", *, tree: int = 0, hash: str = "") -> Entry:
    """An entry with a long text."""
    return Entry(
        tree=tree or node,
        node=node,
        number=number,
        kind="Told",
        body="{}",
        texts={hash or text.encode().hex(): text},
    )


def question(id: str) -> Question:
    return Question(id=id, node_id=int(id.partition("-")[0]), kind=QuestionKind.Human, text="Well?")
