"""Test agents without a provider.

A model that follows a script:
    ScriptedModel: gives scripted responses: texts, calls (``ToolUse``), failures.
    ScriptedFailure, HANGS: a response that fails, and one that never comes.
    ScriptedRequest: one request that it received, for a test to look at.

Recorded runs:
    replay: run a recorded tree again offline, with the functions of today.
    Replay, Divergence: the outcome, and its first difference from the recording.
    journal_fixture: a pytest fixture that replays a journal.

Stores and engines:
    StoreSuite: the tests that every Store has to pass.
    ClusterSuite: those for the cluster of a store that several processes write.
    EngineSuite: the tests that every WorkEngine has to pass.

The names are loaded on first use; type checkers read ``__init__.pyi``.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
