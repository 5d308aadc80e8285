"""Apply patches to files: with git, and with agents for hunks that do not match."""
