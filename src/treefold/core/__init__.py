"""Vocabulary and contracts: what a function, a call and an event are. No I/O, no tasks."""
