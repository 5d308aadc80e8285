"""The models of the guarded runs, for command lines."""

from guards.guarded import GUARDS, UNGUARDED, reply_by

any_guard = reply_by("")
function, hook, allowed, disallowed, budget, nothing = map(reply_by, (*GUARDS, UNGUARDED))
