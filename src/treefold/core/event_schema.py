"""The JSON Schema of what ``to_json()`` returns, for programs in other languages."""

import json
import sys
from typing import Any

from treefold.core import agent_events
from treefold.core.events import Event
from treefold.core.frames import Frame
from treefold.core.json_form import json_schema, kinds_of
from treefold.core.question import Question
from treefold.core.usage import TokenUsage
from treefold.core.views import NodeView


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema of the JSON form of events, views and questions.

    Example:
        >>> from treefold.events import event_schema
        >>> event_schema()["$defs"]["CallResumed"]["required"]
        ['node', 'at', 'number']
    """
    assert agent_events  # its classes are subclasses of Event, too
    kinds = [*kinds_of(Event), NodeView, Question, Frame, TokenUsage]
    return json_schema("Events and views of treefold", kinds)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(event_schema(), indent=1) + "\n")
