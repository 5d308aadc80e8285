"""Sleep until a time: a question to no person, which expires."""

from treefold.core.fact import replace
from treefold.core.moments import in_words
from treefold.core.question import QuestionKind
from treefold.runtime.calls.node import CallNode
from treefold.runtime.questions.ask import new_question, put
from treefold.runtime.questions.pauses import wait_while_paused


async def sleep(node: CallNode, until: float, key: str) -> None:
    """Let *node* sleep until that time, in seconds since the epoch; it is Paused meanwhile.

    If an earlier process has begun the sleep with this *key*, it ends when that one would have.

    Raises:
        ClosedError: *node* has ended.
    """
    text = f"sleeps until {in_words(until)}"
    question = new_question(node, QuestionKind.Sleep, text, key=key)
    await put(node, replace(question, expires=until))
    # If a person has paused it meanwhile, it continues when it is resumed.
    await wait_while_paused(node)
