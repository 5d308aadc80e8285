"""Running the trees of a shared store on several machines.

====================== ===========================================================================
``worker``             Worker: takes trees over, runs them, and gives them up again
``run``                Run: one tree that this process runs, and whether it may be given up
``heartbeat``          Heartbeat: says that this process lives, and learns what it has lost
``cluster_allowances`` ClusterAllowances: limits, rates and budgets of all workers together
``command_reader``     CommandReader: executes what other processes ask for
``follower``           Follower: keeps the trees up to date that other workers run
====================== ===========================================================================

The store decides who runs a tree, and refuses what anybody else writes. A work engine only delivers
the ids of trees: late, twice or never is harmless.
"""
