"""How many model requests are under way and sent, and which models there are.

=================== ==============================================================================
``limits``          Limits: how many model requests may be under way
``allowances``      Allowances: lets requests through by limits of all processes and by rates
``leases``          Lease: the right of a tree to send model requests
``slots``           SlotPool: a limited number of slots, first come, first served
``model_names``     ModelNames: resolves a reference to a model
=================== ==============================================================================
"""
