"""The models of the guarded runs, for command lines."""

from guards.guarded import reply_by

function, hook, allowed, disallowed, budget = map(
    reply_by, ("function", "hook", "allowed", "disallowed", "budget")
)
