"""The call tree: functions and agents call each other, and every call is a node.

Functions, which can be called:
    Function: the base of them all: a name, a schema of its arguments, the functions it uses.
    CodeFunction: a Python callable.
    agent: the decorator that makes an AgentFunction from a function that returns its prompt.
    AgentFunction: a prompt with a signature; calling it has a model carry out the prompt.
    Ensemble: calls an agent several times and reconciles the answers.
    ThinkMore, ThinkMoreDecorator: have an agent review and improve its own answer.
    FunctionArg, FromFile: an argument that is listed by hand; a value that is read from a file.

Running them:
    Runtime: starts calls, and keeps their trees; with a store, trees survive the process.
    RunContext: what a running function sees of the framework, ``invoke`` above all.
    RunInfo: the run that dependencies are made for.
    SessionBag, SessionScope: objects that live as long as a call, and which call that is.
    WorkerSettings: how a process takes part in a store that several processes share.
    WorkerStatus, WorkerPhase: how it does there.
    Limits, Rate: how many requests may be under way at once, and how many in a minute.
    Budget: what a call may spend.
    Compaction: how an agent makes room in the context window of its model.
    Edit: the changes that a fork makes.

Calls:
    Node: one call, live or past; CodeNode, AgentNode: a call of code, and one of an agent.
    NodeState, NodeView: the state of a call, and an immutable snapshot of it and all below it.
    Frame: one call on the path that leads to another.
    Question, QuestionKind: what a call asks a person, and why.
    SaidMessage, Receipt: what a person said to an agent while it ran, and whether it has arrived.
    Notification: what ``Runtime(notify=...)`` receives about a question.
    show: waits for a call, and shows its tree meanwhile, in a notebook or on a terminal.
    attach, Observer: read a journal that another process may drive, and answer its questions.

The conversation of an agent:
    TranscriptPart: one part of it: UserText, ModelText, ThinkingPart, ToolUse, ToolResult.
    ThinkingSignature: what a provider needs to accept thinking again.
    TokenUsage, Provider: the tokens of a call, and whose protocol a model speaks.

All of these can be imported from ``treefold`` as well. Stores are in ``treefold.stores``, models in
``treefold.models``, exceptions in ``treefold.errors``. Names are loaded on first use; type checkers
read ``tree.pyi``.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
