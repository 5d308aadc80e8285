"""A node: one call, from its request to its end.

===================== ============================================================================
``task``              runs one call, from its first line to its outcome
``time_limits``       the timeout of a call, and the seconds of its budgets
``past_call``         calls of an earlier process that are made again
``stack``             the calls that lead to a node, as frames
``walk``              walks a tree of nodes: subtree, root, upwards, parked
``node``              CallNode, CodeNode: runs one call, through its stages
``cancellable_node``  CancellableNode: a call that can be stopped, with all below it
``awaited_node``      AwaitedNode: a call that is waited for, on any loop or thread
``recorded_node``     RecordedNode: what the record of a call says about it
``stage``             Stage: how far this process is with a call
``outcome``           the outcome of a call, and the event that states it
``live_call``         LiveCall: the end of a call, for streams of its events
``child_calls``       ChildCalls: the calls that a call has made, and their keys
``cancellation``      Cancellation: why a call is being stopped
``budgets``           Account: what has been spent of a budget
``files``             reads arguments from files
===================== ============================================================================
"""
