"""Runs functions as trees of nodes, as tasks and in threads.

A call takes one way: ``Runtime`` passes a ``CallRequest`` to its ``Engine``, which publishes it to
the ``Tree`` of the call and makes a node; the node runs the function as a task and publishes what
happens. The tree applies each event to the ``CallRecord`` of its call, from which views are made,
and records it through the ``JournalWriter``. ``Loader`` reads the records of earlier processes, and
the ``Backend`` of the runtime resumes them. An ``Observer`` reads the journal from another process.
``docs/architecture.md`` explains the words.

The modules and folders, each of which imports only from those below it:

=================== ==============================================================================
``ambient``         the default runtime of calls made outside any Runtime, one per event loop
``runtime``         Runtime: the public facade
``opening``         opens a journal, and chooses the backend of a runtime
``in_memory``       InMemory: the backend without a journal
``driver``          Driver: the backend whose journal no other process writes
``cluster/``        Worker: the backend whose store several processes share
``forks``           Forks: trees that share the past of another
``recovery``        Recovery: resumes and deletes trees, for both backends with a journal
``readiness``       whether this process has what a recorded tree needs
``engine``          Engine: ids, keys, starting calls and attaching to recorded ones
``backend``         Backend: what runtime and engine need of each of the three
``tree_registry``   TreeRegistry: finds nodes by id, knows the open trees, deletes trees
``keyed_calls``     KeyedCalls: finds top-level calls by their keys, in memory and in the store
``accounts``        Accounts: one for each budget that requests are paid from
``deps``            gives each tree its dependencies
``unread_nodes``    top-level calls of finished trees in a list, each of which is read when used
``context``         Context: what a function can ask of the framework while it runs
``observe/``        Observer: watches and controls the runs of another process
``durable/``        the journal: JournalWriter, Loader, the inbox
``conversations/``  AgentNode: a call of an agent, its conversation and its requests
``services``        Services: the objects that all calls of a runtime share
``graph``           checks which functions there are and which may call which
``guarding``        the permissions that bind a tree, recorded and restored
``questions/``      asks people, pauses calls, sleeps
``past_runs``       the last completed runs of each agent
``limits/``         Limits, leases: how many model requests are under way
``calls/``          CallNode: one call, from its request to its end
``trees/``          Tree: the records of one top-level call and all below it
``loops/``          LoopHandle: runs code on the runtime's event loop from any thread
=================== ==============================================================================
"""
