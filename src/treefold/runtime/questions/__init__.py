"""What a call does while it waits for a person.

=================== ==============================================================================
``ask``             asks a question and waits for the answer
``pauses``          Pause: holds a subtree before its next request or call
``in_doubt``        the gate of calls that an earlier process had begun
=================== ==============================================================================
"""
