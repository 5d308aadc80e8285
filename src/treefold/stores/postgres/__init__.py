"""A journal and saved chats in PostgreSQL, for the processes of several machines.

=================== ==============================================================================
``store``           PostgresStore: the store itself
``batches``         writes entries, and sorts out the batches that are refused
``reading``         reads entries, trees and questions
``membership``      what a store does as a worker: join, adopt, release
``messages``        posts and reads the messages for the owners of drives
``sessions``        saved chats
``signals``         tells other processes that something was written, and hears it from them
``migration``       creates the tables; ``tables.sql`` and ``functions.sql``
``roles``           what a worker, a desk and a viewer may do
``pool``            connections, lent to one thread at a time, and retried if they are lost
``connection``      one connection, and what is checked when it is opened
``address``         a URL, and how much of it may be shown
``faults``          PostgreSQL's errors as sentences
``rows``            entries as JSON and back
=================== ==============================================================================

Nothing else imports psycopg. The public names are PostgresStore, migrate and grant; they
are loaded when they are first used, and ``__init__.pyi`` tells type checkers the same.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
