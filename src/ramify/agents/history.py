"""What an agent and its model have said, for hooks to read."""

from ramify.core.messages import Message, MessageWriter
from ramify.runtime.agent_node import AgentNode


class History:
    """The conversation of one call as plain messages; each part is read once."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node
        self._writer = MessageWriter()
        self._messages: list[Message] = []
        self._read = 0

    def messages(self) -> list[Message]:
        """Return all messages, oldest first."""
        said = self._node.said
        self._messages += self._writer.write(said[self._read :])
        self._read = len(said)
        return list(self._messages)
