"""The events of a tree: what happened to its calls, as frozen data named in the past tense.

``runtime.events(node)`` and ``attach(store).events(id)`` return them as an EventStream, and
``event.to_json()`` is the JSON form of each; docs/reference/events.md describes both.

Event: the base of them all: *node*, the id of the call, and *number*, its position in the tree.

Every call:
    CallRequested, CallAllowed, CallStarted, CallEnded: from its request to its end.
    ArgumentsEdited: it is made with other arguments than requested.
    ValueSent: it sent a value before its end.
    CallPaused, CallResumed: it waits for a person or a time, and continues.
    QuestionAsked, QuestionSettled: what it asks a person, and the answer; or when it sleeps.
    QuestionEscalated, QuestionNotified: the next person is asked; ``notify`` was called.

The conversation of an agent with its model:
    ConversationOpened: with which model, and which functions it may call.
    LeaseAwaited, RateAwaited, BudgetAwaited, RequestSent, RequestRetried, RequestFailed: a request.
    ResponseStreamed, ResponseCompleted: its response, while it arrives and as a whole.
    Epoch: where requests begin, in a ConversationOpened: with all that was said, or a summary.
    MessagePosted: a person said something to the agent.
    HookDecided: a hook had the model told something else.
    NoticeGiven: something for the person who runs the tree.

Trees that are resumed or forked:
    TreeResumed, ProcessDied, CallReopened: a call runs again in another process.
    TreeHeldBack: a process does not run the tree, because it lacks something.
    TreeImported, ImportAccepted: it came from a file; a person has resumed it.
    GuardsAdded, GuardsLifted: further permissions bind the tree; a person has lifted some.
    TreeForked, CallInherited, AgentEdited: a fork shares calls with another tree.

For programs in other languages:
    event_schema: the JSON Schema of all of that.

The names are loaded on first use; type checkers read ``events.pyi``.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
