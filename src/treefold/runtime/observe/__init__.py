"""Watching and controlling the runs of another process through its journal.

=================== ==============================================================================
``observer``        attach, Observer: reads a journal, posts commands to its driver
``observed_tree``   ObservedTree: a tree folded from the journal of another process
``poll``            Poll: wakes callbacks when a journal has changed
=================== ==============================================================================
"""
