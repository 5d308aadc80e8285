"""The call of an agent: its conversation with a model, one request at a time.

=================== ==============================================================================
``agent_node``      AgentNode: a call of an agent
``conversation``    Conversation: of an agent's call with its model, one request at a time
``partial_output``  PartialOutput: finds the typed result in a response while it arrives
``admission``       admits a request: pauses, leases, slots and budgets
=================== ==============================================================================
"""
