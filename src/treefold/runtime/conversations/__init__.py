"""The call of an agent: its conversation with a model, one request at a time.

=================== ==============================================================================
``agent_node``      AgentNode: a call of an agent
``conversation``    Conversation: of an agent's call with its model, one request at a time
``partial_output``  PartialOutput: finds the typed result in a response while it arrives
``opened``          Opened: an open conversation, and how large its next request will be
``admission``       admits a request: pauses, leases, slots and budgets
``reservation``     Reservation: of a request, in the budgets of its call and of all above
=================== ==============================================================================
"""
