"""What ``treefold.events`` exports, for type checkers; ``events.py`` loads it on first use."""

from treefold.core.agent_events import (
    BudgetAwaited as BudgetAwaited,
    ConversationOpened as ConversationOpened,
    Epoch as Epoch,
    HookDecided as HookDecided,
    LeaseAwaited as LeaseAwaited,
    NoticeGiven as NoticeGiven,
    RateAwaited as RateAwaited,
    RequestFailed as RequestFailed,
    RequestRetried as RequestRetried,
    RequestSent as RequestSent,
    ResponseCompleted as ResponseCompleted,
    ResponseStreamed as ResponseStreamed,
)
from treefold.core.event_schema import event_schema as event_schema
from treefold.core.events import (
    AgentEdited as AgentEdited,
    ArgumentsEdited as ArgumentsEdited,
    CallAllowed as CallAllowed,
    CallEnded as CallEnded,
    CallInherited as CallInherited,
    CallPaused as CallPaused,
    CallReopened as CallReopened,
    CallRequested as CallRequested,
    CallResumed as CallResumed,
    CallStarted as CallStarted,
    Event as Event,
    GuardsAdded as GuardsAdded,
    GuardsLifted as GuardsLifted,
    ImportAccepted as ImportAccepted,
    ProcessDied as ProcessDied,
    QuestionAsked as QuestionAsked,
    QuestionEscalated as QuestionEscalated,
    QuestionNotified as QuestionNotified,
    QuestionSettled as QuestionSettled,
    TreeForked as TreeForked,
    TreeHeldBack as TreeHeldBack,
    TreeImported as TreeImported,
    TreeResumed as TreeResumed,
    ValueSent as ValueSent,
)
from treefold.runtime.trees.event_stream import EventStream as EventStream
