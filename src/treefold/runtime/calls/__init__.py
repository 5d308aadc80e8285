"""A node: one call, from its request to its end.

=================== ==============================================================================
``task``            CallTask: runs one call, from its first line to its outcome
``stack``           the calls that lead to a node, as frames
``walk``            walks a tree of nodes: subtree, root, upwards, parked
``node``            CallNode, CodeNode: record, task, waiters and child calls of one call
``waiters``         Waiters: those who wait for a call, on any loop or thread
``live_call``       LiveCall: the end of a call, for streams of its events
``child_calls``     ChildCalls: the calls that a call has made, and their keys
``cancellation``    Cancellation: why a call is being stopped
``budgets``         Account: what has been spent of a budget
``files``           reads arguments from files
=================== ==============================================================================
"""
