"""What programs need to test their agents."""

from ramify.testing.scripted import HANGS, ScriptedFailure, ScriptedModel, ScriptedRequest
from ramify.testing.store_suite import StoreSuite

__all__ = ["HANGS", "ScriptedFailure", "ScriptedModel", "ScriptedRequest", "StoreSuite"]
