"""The first face: tools, turns that run them, and agents that work through a queue of turns."""
