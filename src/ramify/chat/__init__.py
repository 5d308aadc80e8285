"""A person and a model: queries, clients, blocks and histories."""
