"""``examples/simple_tool.py``, with a server that plays the model."""

from chat_helpers import Assistant, Result, User, call, serving
from example_runs import Run, calling, said, start
from wire import openai_wire

QUESTION = User("On which day of the week did Apollo 11 land?")


async def test_the_model_looks_up_the_day_and_says_it():
    async with serving(
        openai_wire.calls([calling("call_1", "weekday", day="1969-07-20")]),
        openai_wire.text("On a", " Sunday."),
    ) as server:
        assert await start("simple_tool", server=server) == Run(0, "On a Sunday.\n")

    first, second = server.requests
    assert first.json["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "weekday",
                "description": "Tell on which day of the week a date falls.",
                "parameters": {
                    "type": "object",
                    "properties": {"day": {"type": "string", "format": "date"}},
                    "required": ["day"],
                    "additionalProperties": False,
                },
            },
        }
    ]
    assert said(first) == [QUESTION]
    assert said(second) == [
        QUESTION,
        Assistant(calls=(call("call_1", "weekday", day="1969-07-20"),)),
        Result("call_1", "Sunday"),
    ]


async def test_without_a_model_it_says_which_variable_to_set():
    run = await start("simple_tool")
    assert run.code == 1
    assert run.complaints.endswith("no model is named: give one, or set TREEFOLD_MODEL\n")
