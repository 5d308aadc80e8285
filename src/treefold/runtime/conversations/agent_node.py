"""The call of an agent: a node with a conversation."""

from collections.abc import Callable, Sequence

from treefold.core.agent_errors import AgentException
from treefold.core.call_keys import is_past, of_preparation, of_tool_use
from treefold.core.call_request import CallRequest
from treefold.core.decisions import RuleChain
from treefold.core.exchange import Exchange
from treefold.core.record import CallRecord
from treefold.core.said import SaidMessage
from treefold.core.transcript import TranscriptPart
from treefold.runtime.calls.node import CallNode
from treefold.runtime.conversations.conversation import Conversation
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.services import Services
from treefold.runtime.trees.tree import Tree


class AgentNode(CallNode):
    """Call tree: one call of an AgentFunction, with its conversation.

    It is not the agent: that is the AgentFunction, which can be called many times.

    Example:
        >>> from treefold import AgentFunction, AgentNode, Runtime
        >>> from treefold.testing import ScriptedModel
        >>> greet = AgentFunction("greet", "Greet.", user_prompt_template="Say hello.")
        >>> with Runtime([greet], models=ScriptedModel("Hello!")) as runtime:
        ...     node = runtime.invoke(greet)
        ...     node.result(), isinstance(node, AgentNode)
        ('Hello!', True)
        >>> node.get_transcript()
        [UserText(text='Say hello.'), ModelText(text='Hello!')]
    """

    __slots__ = ()

    conversation: Conversation

    def __init__(
        self,
        record: CallRecord,
        request: CallRequest,
        *,
        parent: CallNode | None,
        tree: Tree,
        loop_handle: LoopHandle,
        services: Services,
    ) -> None:
        super().__init__(
            record,
            request,
            parent=parent,
            tree=tree,
            loop_handle=loop_handle,
            board=services.board,
        )
        above = parent
        while above is not None and not isinstance(above, AgentNode):
            above = above.parent
        self.conversation = Conversation(self, services, above and above.conversation)

    # What it is

    @property
    def model(self) -> str | None:
        """The name of the model that it talks to."""
        return self.conversation.model

    @property
    def responses(self) -> int:
        """The number of the last response."""
        return self.conversation.responses

    @property
    def notices(self) -> list[str]:
        """Notices for the person who runs this."""
        return self.conversation.notices

    def get_transcript(self) -> list[TranscriptPart]:
        talk = self.record.conversation
        return [*talk.transcript, *talk.unanswered]

    @property
    def exchanges(self) -> Sequence[Exchange]:
        return [response.exchange for response in self.record.conversation.responses]

    @property
    def rule_chain(self) -> RuleChain:
        """The rules for the calls that its model asks for, the widest first."""
        return self.conversation.rules

    @property
    def is_requesting(self) -> bool:
        return self.conversation.is_requesting

    @property
    def knows_all(self) -> bool:
        talk = self.record.conversation
        return bool(talk.responses or talk.unanswered)

    def when_answering(self, wake: Callable[[], None]) -> None:
        self.conversation.when_answering(wake)

    def say(self, said: SaidMessage) -> None:
        if not self.function.takes_messages:
            super().say(said)
        self.conversation.say(said)

    def continuation(self) -> CallRequest:
        """Return the request for a call that continues the conversation of this one."""
        return CallRequest(
            self.function,
            self.inputs,
            self.request.timeout,
            model=self.request.model,
            budget=self.request.budget,
            rules=self.request.rules,
            deps=self.request.deps,
            prior=self.conversation.continuation(),
        )

    # Its calls

    def may_make_again(self, key: str) -> bool:
        # The calls of the last response are made again unless their results have been sent.
        is_answered = self.record.conversation.response is None
        is_over = is_past(key, self.responses, is_answered=is_answered)
        return super().may_make_again(key) and not is_over

    def note_resignation(self, error: BaseException | None) -> None:
        if isinstance(error, AgentException):
            self.conversation.resignations.append(error)

    def content_key(self, request: CallRequest) -> str:
        if request.prepares is not None:
            return of_preparation(self.responses + 1, request.prepares)
        if request.tool_use_id is None:
            return super().content_key(request)
        return of_tool_use(self.responses, request.tool_use_id)
