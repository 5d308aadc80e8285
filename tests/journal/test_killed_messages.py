"""People say things to an agent at random moments, and its process is killed at random moments.

A few of them: ``make crash`` says a thousand.
"""

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from journal.processes import EXHAUSTIVE, Lives, World
from treefold import AgentFunction, Receipt, Runtime, SaidMessage, ToolUse, UserText, attach
from treefold.core.errors import UnknownNodeError, UsageError
from treefold.testing import ScriptedModel

KEY: Final = "talk"
WHEN: Final[Sequence[Literal["next", "idle"]]] = ("next", "next", "idle")
MESSAGES: Final = 1000 if EXHAUSTIVE else 60
LIVES: Final = 400


def model_of(world: World) -> ScriptedModel:
    """A model that works until everything was said."""

    def reply(request: Any) -> Any:
        if world.done("enough"):
            return "done"
        number = sum(isinstance(part, ToolUse) for part in request.transcript)
        return ToolUse(f"call_{number}", "look", {"n": number})

    return ScriptedModel(reply)


def talk(world: World) -> None:
    """Go on with the agent, until it ends or is killed."""
    look = world.tool("look", repeatable=True)
    agent = AgentFunction(
        "search",
        "Searches.",
        user_prompt_template="Look.",
        uses=[look],
        max_steps=1_000_000,
    )
    kill = world.folder / "kill"
    if kill.exists():
        threading.Timer(float(kill.read_text()), world.die).start()
    with Runtime([agent], models=model_of(world), store=world.file) as runtime:
        node = runtime.invoke(agent, key=KEY)
        sys.stdout.write(json.dumps({"result": node.result()}))


class Person(threading.Thread):
    """Says one thing after another, from another process than the agent's."""

    def __init__(self, world: World, seed: int) -> None:
        super().__init__()
        self.said: dict[str, SaidMessage] = {}  # by text
        self.refused: list[str] = []
        self._world = world
        self._random = random.Random(seed)

    def run(self) -> None:
        while not self._world.file.exists():
            time.sleep(0.01)
        with attach(self._world.file) as observer:
            number = 0
            while number < MESSAGES:
                time.sleep(self._random.expovariate(200))
                text = f"message {number}."
                try:
                    tree = observer.find_key(KEY)
                    if tree is None:
                        continue
                    when = self._random.choice(WHEN)
                    said = observer.say(tree, text, when=when)
                    self.said[text] = said
                except UnknownNodeError:
                    continue
                except UsageError:
                    self.refused.append(text)
                number += 1
                if number == MESSAGES - 5:  # the last ones race with the end
                    self._world.add("enough")


@pytest.mark.parametrize("seed", [1] if not EXHAUSTIVE else [1, 2, 3])
def test_what_is_said_is_delivered_once_or_reported_as_too_late(
    tmp_path: Path, lives: Lives, seed: int
):
    world, source = World(tmp_path), random.Random(seed)
    person = Person(world, seed)
    person.start()
    killed = 0
    for _ in range(LIVES):
        if person.is_alive():
            (tmp_path / "kill").write_text(f"{source.uniform(0.02, 0.6)}")
        else:
            (tmp_path / "kill").unlink(missing_ok=True)
        life = lives.run(talk, world)
        if life.status == 0:
            assert json.loads(life.printed) == {"result": "done"}
            break
        killed += 1
    person.join(60)
    assert killed
    with attach(world.file) as observer:
        tree = observer.find_key(KEY)
        assert tree is not None
        view = observer.get_view(tree)
    assert view.state.final
    told = Counter(part.text for part in view.transcript if isinstance(part, UserText))
    receipts = {one.id: one.receipt for one in view.messages}
    delivered = 0
    for text, said in person.said.items():
        # What the run did not live to take has no receipt, and it has ended: that is too late.
        receipt = receipts.get(said.id, Receipt.TooLate)
        assert receipt is not Receipt.Posted
        found = sum(told_text.count(text) * count for told_text, count in told.items())
        assert found == (receipt is Receipt.Delivered), f"{text} {receipt}"
        delivered += found
    # Those that were posted a moment before the end are too late.
    assert delivered > MESSAGES // 2
