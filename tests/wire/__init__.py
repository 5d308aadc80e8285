"""Model providers on the loopback: real sockets, scripted replies, scripted faults."""

from wire.replies import (
    Close,
    Cut,
    Pause,
    Reply,
    Stall,
    Step,
    Wait,
    closed_after,
    cut_after,
    failure,
    in_pieces,
    slow_first_byte,
    stalled_after,
    stream,
    then,
    with_length,
)
from wire.server import ModelServer, Request

__all__ = [
    "Close",
    "Cut",
    "ModelServer",
    "Pause",
    "Reply",
    "Request",
    "Stall",
    "Step",
    "Wait",
    "closed_after",
    "cut_after",
    "failure",
    "in_pieces",
    "slow_first_byte",
    "stalled_after",
    "stream",
    "then",
    "with_length",
]
