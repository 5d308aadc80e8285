"""What ``treefold.testing`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from treefold.testing.cluster_suite import ClusterSuite as ClusterSuite
from treefold.testing.divergence import Divergence as Divergence
from treefold.testing.engine_suite import EngineSuite as EngineSuite
from treefold.testing.replaying import (
    Replay as Replay,
    journal_fixture as journal_fixture,
    replay as replay,
)
from treefold.testing.scripted import (
    HANGS as HANGS,
    ScriptedFailure as ScriptedFailure,
    ScriptedModel as ScriptedModel,
    ScriptedRequest as ScriptedRequest,
)
from treefold.testing.store_suite import StoreSuite as StoreSuite
