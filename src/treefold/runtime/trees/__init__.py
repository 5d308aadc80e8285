"""A tree: the events of one top-level call, folded into records, and what its nodes share.

=================== ==============================================================================
``tree``            Tree: publishes events, keeps the records, wakes watchers
``watch``           Watch: waits for the next view of a node
``event_stream``    EventStream: the events of a node, and TreeEvents, which reads them
``waiting``         waits until a tree has something new
``question_board``  QuestionBoard: the open questions of a runtime
``question_timers`` expires and escalates questions, ends sleeps
``dependencies``    Dependencies: made before the first call of a tree runs, closed after the last
``bags``            SessionBag: objects that live as long as their tree
``run_log``         what is logged of a run, for each type of event
=================== ==============================================================================
"""
