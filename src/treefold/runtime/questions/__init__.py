"""What a call does while it waits for a person.

=================== ==============================================================================
``ask``             asks a question and waits for the answer
``typed``           questions for a text or a value of a type, with a default and a time limit
``sleep``           a question to no person, which expires
``pauses``          Pause: holds a subtree before its next request or call
``in_doubt``        the gate of calls that an earlier process had begun
``more_budget``     asks for a larger budget
``notifier``        Notifier: tells people of questions
``webhook``         posts JSON to a URL, for it
=================== ==============================================================================
"""
