"""What programs need to test their agents."""

from ramify.testing.divergence import Divergence
from ramify.testing.replaying import Replay, journal_fixture, replay
from ramify.testing.scripted import HANGS, ScriptedFailure, ScriptedModel, ScriptedRequest
from ramify.testing.store_suite import StoreSuite

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
