"""What programs need to test their agents."""

from ramify.testing.scripted import HANGS, ScriptedFailure, ScriptedModel, ScriptedRequest

__all__ = ["HANGS", "ScriptedFailure", "ScriptedModel", "ScriptedRequest"]
