"""``examples/local_offer.py``, on a scripted model; ``make test-local`` has a real one."""

import os

import pytest

from agent_scripts import told
from treefold import ToolUse, registries
from treefold.models import find_model
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.testing.scripted import Reply

with registries():  # other tests look at all the tools that there are
    from local_offer import MODEL, REQUEST, Offer, answer

REAL = os.environ.get("LOCAL_MODEL", "")
OFFER = Offer(item="lamp", quantity=3, in_stock=37, unit_price=12.5)


def plays(request: ScriptedRequest) -> Reply:
    if not told(request):
        return ToolUse("call_1", "look_up", {"item": "lamps"})
    return ToolUse("call_2", "return_result", OFFER.model_dump())


def test_the_stock_is_looked_up_and_an_offer_is_returned(capsys: pytest.CaptureFixture[str]):
    model = find_model(REAL) if REAL else ScriptedModel(plays)
    assert answer(REQUEST, model) == OFFER
    printed = capsys.readouterr().out
    assert "look_up(item=" in printed
    assert "lamp: 37 in stock, 12.5 euros each" in printed
    assert printed.endswith("3 of 3: lamp, 37.50 euros\n")


def test_it_is_meant_for_a_model_that_can_be_fetched():
    assert find_model(MODEL).name == MODEL
