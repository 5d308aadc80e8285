"""Show runs: these read views and events, and never change anything."""
