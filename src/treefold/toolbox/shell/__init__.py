"""Run shell commands, and stop them with all that they started."""
