"""Work engines: they place the drives of a shared store on workers, and carry nothing but ids.

Engines:
    InProcess: a queue in memory, for one process.
    Procrastinate: a queue in PostgreSQL.
    Temporal: activities of a Temporal server.

For an engine of your own, which ``treefold.testing.EngineSuite`` tests:
    WorkEngine: the contract.
    Ticket: what is submitted; Take, Taken: what a worker does with a delivery.
    Stop, Depth: when a worker stops; how much work there is.

The names are loaded on first use; type checkers read ``__init__.pyi``.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
