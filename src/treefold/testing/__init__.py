"""What programs need to test their agents."""

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
