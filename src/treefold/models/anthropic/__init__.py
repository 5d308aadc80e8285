"""Claude, through Anthropic's API."""
