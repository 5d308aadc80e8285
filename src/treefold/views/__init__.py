"""Show runs: read views and events, and never change anything."""
