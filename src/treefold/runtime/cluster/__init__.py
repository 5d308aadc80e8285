"""Running the trees of a shared store on several machines.

====================== ===========================================================================
``worker``             Worker: takes part in a cluster, from joining the store to leaving it
``runs``               Runs: takes trees over, runs them, and gives them up again
``run``                Run: one tree that this process runs, and whether it may be given up
``dispatcher``         Dispatcher: submits to the work engine, and takes what it delivers
``remote_calls``       RemoteCalls: calls that other workers run than their caller
``insisting``          repeats an operation until the store can be reached
``heartbeat``          Heartbeat: says that this process lives, and learns what it has lost
``cluster_allowances`` ClusterAllowances: limits, rates and budgets of all workers together
``command_reader``     CommandReader: executes what other processes ask for
``follower``           Follower: keeps the trees up to date that other workers run
``current_tree``       CurrentTree: the tree of a node, whichever process runs it just now
====================== ===========================================================================

The store decides who runs a tree, and refuses the entries of all others. A work engine only
delivers the ids of trees: late, twice or never is harmless.
"""
