import pytest

from wire.protocols import PROTOCOLS, Protocol


@pytest.fixture(params=PROTOCOLS, ids=str)
def protocol(request: pytest.FixtureRequest) -> Protocol:
    return request.param
