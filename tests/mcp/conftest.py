"""What is in ``servers`` is started by tests, not imported."""

collect_ignore = ["servers"]
