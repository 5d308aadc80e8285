"""Run functions as a tree of nodes: the only place that starts tasks and threads."""
