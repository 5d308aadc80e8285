"""Chat: a person talks to a model that calls functions."""
