"""A program that is killed, started again, and held to what it had promised.

``tree`` is what it runs, ``effects`` what it leaves behind beside its journal, ``program`` one life
of it, ``nursery`` starts such lives quickly, ``trial`` strings them together, and ``rules`` is what
must hold in the end.
"""
