"""Random programs of code and agents, a stage to run them on, and what must hold in each of them.

``plans`` says what a program is and draws one, ``stage`` makes functions and models of it,
``director`` runs it and meddles, ``rules`` is the reference that all of it is held against.
"""
