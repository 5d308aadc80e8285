"""The journal: written while calls run, and read to resume, fork and observe them.

=================== ==============================================================================
``journal_writer``  JournalWriter: writes events to the store in batches, with retries
``backlog``         Backlog: the entries that are not durable yet
``outage``          Outage: a time in which the journal cannot be written
``tree_reader``     TreeReader: reads the events of a tree from a store
``loader``          Loader: reads recorded trees, attaches requests to their calls
``crash_trials``    CrashTrials: resumes trees whose process died, suspicious ones in turn
``inbox``           Inbox: executes the commands that observers post
``commands``        the JSON form of commands and refusals
``live_text``       broadcasts and reads responses while they arrive
``journal_events``  JournalEvents: what a stream of events reads
=================== ==============================================================================
"""
