"""Prompts with a signature, the one loop that drives every model, and what is built of them."""
