"""Chat: a person talks to a model that calls functions.

``client`` is what programs use, with ``options``, ``blocks`` and ``config``. Each prompt is a
``turn``: a call of the one loop, whose blocks go through an ``outbox`` to whoever reads them.
``conversation`` keeps the history for people and the session for the model in step, with
``mending`` for a history that was changed, and ``saving`` writes it down. ``context`` measures and
cuts histories, and can be used without a client.
"""
