"""The exceptions that treefold raises, as one tree; the first branch says whose fault it was.

TreefoldError
├── UsageError                    the program is wrong: change the code (RuntimeError)
│   ├── DefinitionError           a function cannot be made from this (TypeError)
│   ├── DuplicateNameError        the name is taken (ValueError)
│   ├── CallGraphError            functions call what they may not (ValueError)
│   ├── UnregisteredError         no such name or id (KeyError)
│   │   ├── UnregisteredToolError
│   │   ├── UnregisteredAgentError
│   │   ├── UnregisteredHookError
│   │   ├── UnknownNodeError
│   │   ├── UnknownQuestionError
│   │   └── UnknownSessionError
│   ├── InvalidValueError         a value cannot be used here (ValueError)
│   │   ├── NoModelError          no model was chosen for a call
│   │   └── OtherProtocolError    a saved conversation is in the protocol of another provider
│   ├── WrongRunMethodError       returning() on a stream, or yielding() on a single value
│   ├── SafeExecutionError        not allowed while the turn or agent is running
│   ├── CompletionCheckReturnError
│   ├── SerializationError        a value has no JSON form (TypeError)
│   ├── NoParentSessionError      a top-level call has no parent bag
│   ├── BlockingCallError         the call would block the loop that it waits for
│   ├── ClosedError               the runtime is closed, or the calling call has ended
│   ├── HeldBackError             this process lacks what a recorded tree needs to run
│   ├── WeightsUnavailableError   a local model cannot be fetched
│   └── IllegalTransitionError
├── CallError                     one call failed: its caller decides what to do
│   ├── InvalidArgumentsError     the arguments do not fit (ValueError)
│   ├── CallTimeoutError          it took too long (TimeoutError)
│   │   └── TurnTimeoutError
│   ├── DependencyError           the dependencies of a run could not be made
│   ├── McpToolError              a tool of an MCP server failed
│   ├── McpConnectionError        an MCP server cannot be reached
│   ├── FileError                 a file is not as the call needs (ValueError)
│   ├── CancellationException     it was cancelled
│   ├── RecursionDepthError       a function called itself too often (RecursionError)
│   ├── QuestionExpiredError      a question had no answer in time (TimeoutError)
│   ├── InDoubtError              it is not known whether it was done; a person chose 'fail'
│   ├── TooLargeError             one of its values does not fit into the journal (ValueError)
│   ├── RecordedError             stands for an exception of an earlier process
│   ├── AgentException            an agent gave up
│   ├── DeniedError               a rule or a person denied it
│   ├── BlockedError              a rule or a person denied it, in a chat (RuntimeError)
│   ├── BudgetExceeded            a budget is used up
│   ├── UnknownPriceError         a budget in dollars cannot be enforced
│   ├── StepLimitError            an agent made too many requests
│   ├── NoAnswerError             a model gave no usable answer
│   ├── EnsembleError             too few candidates, or no model could reconcile them
│   └── ModelRefusedError         the model refused to answer
├── StoreError                    a file of treefold cannot be read or written: check the disk
│   ├── SessionConflictError      another client has continued the session
│   ├── StoreBusyError            another program has locked the file
│   ├── StoreDamagedError         it does not have any more what was written: restore a copy
│   ├── StoreOwnedError           another runtime owns it
│   └── FencedError               another runtime has written to it
├── EngineError                   a work engine cannot be used: check its server and address
└── TracedError                   with an agent traceback; AgentException is one, too
    └── ModelProviderException    a model's provider failed: not the agent's fault

What is in brackets is the Python error that it is as well. Exceptions that functions raise
themselves propagate unchanged.

Those that a program catches most often can be imported from ``treefold`` as well. The names are
loaded on first use; type checkers read ``errors.pyi``.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
