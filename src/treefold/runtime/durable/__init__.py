"""The journal: written while calls run, and read to resume, fork and observe them.

===================== ==============================================================================
``journal_writer``    JournalWriter: writes events to the store in batches, with retries
``backlog``           Backlog: the entries that are not durable yet
``unwritten``         writes calls of this process that an observer asks for
``outage``            Outage: a time in which the journal cannot be written
``tree_source``       TreeSource: the ids of trees and calls, and the journal of each tree
``drive``             Drive: a tree of a shared store that this process runs and writes
``drive_journal``     DriveJournal: the journal of such a tree
``shared_trees``      SharedTrees: the ids and drives of a shared store
``pulse``             Pulse: whether this process still counts as alive there
``id_block``          IdBlock: the ids that are reserved for one tree
``worker_settings``   WorkerSettings: how a process takes part in a shared store
``tree_reader``       TreeReader: reads the events of a tree from a store
``gc_disabled``       no garbage collection while much is read
``loader``            Loader: reads recorded trees, attaches requests to their calls
``function_version``  the version of a function, compared with that of an earlier process
``normalized_source`` the source of a function, without what does not matter
``new_code``          calls that are resumed with another version of their function
``crash_trials``      CrashTrials: resumes trees whose process died, suspicious ones in turn
``inbox``             Inbox: executes the commands that observers post
``histories``         what a tree and its forks have spent of the budget of a runtime
``live_text``         broadcasts and reads responses while they arrive
``journal_events``    JournalEvents: what a stream of events reads
===================== ==============================================================================
"""
