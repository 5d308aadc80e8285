"""Vocabulary and contracts that every other folder uses; no I/O, no tasks, no threads.

Functions and their parameters:
    ``function`` (Function, Node, RunContext), ``code`` (CodeFunction), ``signature``,
    ``parameter``, ``parameters``, ``schema``, ``json_schema``, ``docstring``, ``from_file``.

Events, and what is computed from them:
    ``events`` and ``agent_events`` define the events, ``states`` the states of a node. ``record``
    makes the record of each call from its events, ``snapshot`` the view of a record (``views``),
    and ``forking`` computes what a fork shares. ``frames`` formats a stack of calls.

Journals:
    ``store`` and ``sessions`` are the protocols of a store. ``journaling`` converts events to
    entries and back, ``call_keys`` identifies calls.
    ``value_codec``, ``long_texts`` and ``plain`` serialize values, ``restoring`` restores results
    and exceptions of an earlier process.

Models:
    ``model``, ``model_events``, ``provider``, ``exchange``, ``transcript``, ``messages``,
    ``usage``, ``failures``.

People, rules and limits:
    ``question``, ``decisions`` (allowed tools and decision hooks), ``budget``.

Errors:
    ``errors`` draws the whole tree; ``agent_errors`` and ``provider_errors`` hold some branches.
    ``suggestions`` completes a message about a misspelt name.

The user's machine:
    ``inherited_variables`` (of the environment), ``user_folder``.
"""
