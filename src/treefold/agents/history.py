"""``History``: the conversation of an agent as messages, for hooks."""

from treefold.core.messages import Message, messages_of
from treefold.core.transcript import ToolUse
from treefold.runtime.conversations.conversation import Conversation


class History:
    """The conversation of one call as plain messages; each part is converted once."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._messages: list[Message] = []
        self._asked: list[ToolUse] = []  # the calls in the parts that were converted last
        self._read = 0  # parts converted so far

    def messages(self) -> list[Message]:
        """Return all messages, oldest first."""
        if new := self._conversation.transcript[self._read :]:
            self._messages += messages_of(new, self._asked)
            self._asked = [part for part in new if isinstance(part, ToolUse)]
            self._read += len(new)
        return list(self._messages)
