"""A node: one call, from its request to its end.

=================== ==============================================================================
``node``            CallNode, CodeNode: runs one call as a task, from start to end
``stated_node``     StatedNode: the state of a call, and its restoration from a record
``placed_node``     PlacedNode: parent, children and the keys of calls
``awaited_node``    AwaitedNode: waiting for a call from any thread or loop
``walk``            walks a tree of nodes: subtree, root, upwards, parked
``budgets``         Account: what has been spent of a budget
``files``           reads arguments from files
=================== ==============================================================================
"""
