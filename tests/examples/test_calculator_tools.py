"""``examples/calculator_tools.py``, with a server that plays the model."""

import pytest

from calculator_tools import QUESTION, TOOLS
from chat_helpers import Assistant, Result, User, call, failed, serving
from example_runs import Run, calling, said, start
from wire import openai_wire


def by_zero() -> str:
    """Return what this version of Python says of a division by zero."""
    try:
        return str(1.0 / 0)
    except ZeroDivisionError as error:
        return str(error)


SCRIPT = (
    openai_wire.calls([calling("call_1", "add", a=25, b=17)]),
    openai_wire.calls([
        calling("call_2", "divide", dividend=42, divisor=0),
        calling("call_3", "divide", dividend=42, divisor=9),
    ]),
    openai_wire.calls([calling("call_4", "round_to", number=4.666666666666667)]),
    openai_wire.text("It is ", "4.67."),
)
CALLS = [
    Assistant(calls=(call("call_1", "add", a=25, b=17),)),
    Assistant(
        calls=(
            call("call_2", "divide", dividend=42, divisor=0),
            call("call_3", "divide", dividend=42, divisor=9),
        )
    ),
    Assistant(calls=(call("call_4", "round_to", number=4.666666666666667),)),
]
PRINTED = """\
The client makes the calls:
[add {'a': 25, 'b': 17}]
[divide {'dividend': 42, 'divisor': 0}]
[failed: float division by zero]
[divide {'dividend': 42, 'divisor': 9}]
[round_to {'number': 4.666666666666667}]
It is 4.67.

The calls are made here:
[add {'a': 25, 'b': 17}]
[divide {'dividend': 42, 'divisor': 0}]
[divide {'dividend': 42, 'divisor': 9}]
[round_to {'number': 4.666666666666667}]
It is 4.67.
""".replace("float division by zero", by_zero())


async def test_both_modes_come_to_the_same_answer_and_tell_the_model_what_failed():
    async with serving(*SCRIPT, *SCRIPT) as server:
        assert await start("calculator_tools", server=server) == Run(0, PRINTED)

    *_, automatic, _, _, _, manual = server.requests
    for last, fault in [
        (automatic, failed("call_2", by_zero(), "divide")),
        (manual, Result("call_2", {"error": "ZeroDivisionError: division by zero"})),
    ]:
        assert said(last) == [
            User(QUESTION),
            CALLS[0],
            Result("call_1", 42),
            CALLS[1],
            fault,
            Result("call_3", 42 / 9),
            CALLS[2],
            Result("call_4", 4.67),
        ]


def test_what_may_be_left_out_is_said_in_three_ways():
    required = {name: one.input_schema["required"] for name, one in TOOLS.items()}
    assert required == {
        "add": ["a", "b"],
        "divide": ["dividend", "divisor"],
        "round_to": ["number"],
        "logarithm": ["number"],
        "mean": ["numbers"],
    }
    assert TOOLS["round_to"].input_schema["properties"] == {
        "number": {"type": "number"},
        "digits": {"type": "integer", "default": 2},
    }


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("round_to", {"number": 3.14159, "digits": 3}, 3.142),
        ("logarithm", {"number": 8, "base": 2}, 3.0),
        ("logarithm", {"number": 1}, 0.0),
        ("mean", {"numbers": [3, 4, 8]}, 5.0),
        ("mean", {"numbers": [3, 4], "weights": [3, 1]}, 3.25),
    ],
)
async def test_a_tool_can_be_called_directly(name: str, args: dict[str, object], result: float):
    assert await TOOLS[name].execute(args) == result
