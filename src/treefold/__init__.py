"""Agents are functions, and every run is a tree.

The names are grouped by what they are for; each module is the table of contents of its group:

    treefold.tree: functions and agents that call each other, the runtime, and the nodes of calls.
    treefold.chat: a person talks to a model that calls functions.
    treefold.turns: tools, turns and queues of them; the program decides what happens next.
    treefold.toolbox: functions for agents: a shell, files, patches, questions to a person.
    treefold.models, treefold.mcp: models of all providers; tools of MCP servers.
    treefold.stores: journals and saved chats.
    treefold.engines: engines that place work on the machines of a cluster.
    treefold.testing: a scripted model, replay of recorded runs.
    treefold.errors: the tree of all exceptions.
    treefold.events: what happens to calls, as data.

The most used names can be imported from here as well. Names and modules are loaded when they are
first used; the list of them is ``__init__.pyi``, which type checkers read, too.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
