"""Test agents without a provider.

ScriptedModel
    A model that gives scripted responses: texts, calls (``ToolUse``), ``ScriptedFailure``, or
    ``HANGS``. It records each request as a ``ScriptedRequest``.
replay, journal_fixture
    Run a recorded tree again offline with the functions of today; a pytest fixture for that. The
    outcome is a ``Replay``, with the first ``Divergence`` from the recording.
StoreSuite
    The tests that every Store has to pass.
"""

from treefold.testing.divergence import Divergence
from treefold.testing.replaying import Replay, journal_fixture, replay
from treefold.testing.scripted import HANGS, ScriptedFailure, ScriptedModel, ScriptedRequest
from treefold.testing.store_suite import StoreSuite

__all__ = [
    "HANGS",
    "Divergence",
    "Replay",
    "ScriptedFailure",
    "ScriptedModel",
    "ScriptedRequest",
    "StoreSuite",
    "journal_fixture",
    "replay",
]
