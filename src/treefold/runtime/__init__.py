"""Runs functions as trees of nodes; the only folder that starts tasks and threads.

A call takes one way: ``Runtime`` passes a ``CallRequest`` to its ``Engine``, which makes a node;
the node runs the function as a task and publishes events to its ``Tree``; the tree folds them into
views and records them through the ``JournalWriter``. ``Recovery`` makes nodes from recorded events
instead. An ``Observer`` reads the journal from another process. ``docs/architecture.md`` explains
the words.

The modules, each of which imports only from those below it:

=================== ==============================================================================
``ambient``         the default runtime of calls made outside any Runtime, one per event loop
``runtime``         Runtime: the public facade
``recovery``        Recovery: loads, resumes and forks the trees of earlier processes
``observer``        attach, Observer: reads a journal, posts commands to its driver
``loader``          Loader: makes the nodes of recorded trees
``engine``          Engine: ids, keys, starting calls and attaching to recorded ones
``observed_tree``   ObservedTree: a tree folded from the journal of another process
``tree_registry``   TreeRegistry: finds nodes by id, knows the open trees, deletes trees
``context``         Context: what a function can ask of the framework while it runs
``watch``           Watch: waits for the next view of a node
``stack``           the calls that lead to a node, as frames
``agent_node``      AgentNode: a call of an agent
``conversation``    Conversation: of an agent's call with its model, one request at a time
``services``        Services: the objects that all calls of a runtime share
``in_doubt``        the gate of calls that an earlier process had begun
``crash_trials``    CrashTrials: resumes trees whose process died, suspicious ones in turn
``ask``             asks a person a question and waits for the answer
``graph``           checks which functions there are and which may call which
``pauses``          Pause: holds a subtree before its next request or call
``leases``          Lease: the right to send model requests
``walk``            walks a tree of nodes: subtree, root, upwards, parked
``model_names``     ModelNames: resolves a reference to a model
``limits``          Limits: how many model requests may be under way
``node``            CallNode, CodeNode: runs one call as a task, from start to end
``slots``           SlotPool: a limited number of slots, first come, first served
``inbox``           Inbox: executes the commands that observers post
``stated_node``     StatedNode: the state of a call, and its restoration from a record
``question_board``  QuestionBoard: the open questions of a runtime
``files``           reads arguments from files
``budgets``         Account: what has been spent of a budget
``journal_writer``  JournalWriter: writes events to the store in batches, with retries
``placed_node``     PlacedNode: parent, children and the keys of calls
``awaited_node``    AwaitedNode: waiting for a call from any thread or loop
``tree``            Tree: the events of one top-level call, and what its nodes share
``threads``         runs synchronous code in threads
``tree_reader``     TreeReader: reads the events of a tree from a store
``poll``            Poll: wakes callbacks when a journal has changed
``commands``        the JSON form of commands and refusals
``live_text``       broadcasts and reads the text of responses while they arrive
``loop_handle``     LoopHandle: runs code on the runtime's event loop from any thread
``bags``            SessionBag: objects that live as long as their tree
``resource_task``   ResourceTask: holds a resource open in one task, for use from any other
=================== ==============================================================================
"""
