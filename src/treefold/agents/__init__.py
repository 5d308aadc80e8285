"""Agents: functions that have a model carry out a prompt.

``function``
    AgentFunction: a prompt with a signature.
``decorator``
    ``@agent``: makes an AgentFunction from a Python function that returns its prompt.
``task``
    Task: what a model is to do in one call of an agent; AgentPolicy: the decisions of an agent.
``loop``
    The one loop that drives every model: request, response, calls, results.
``calls``, ``approval``
    The calls that a model asks for: rules and hooks, approval, errors.
``results``
    Results of a declared type, and the function ``return_result``.
``ensemble``, ``think_more``
    Ensemble and ThinkMore: code that calls an agent several times. ``wrapper`` is their base class,
    ``variant`` the agent with one more argument that they call.
``prompts``
    Arguments in prompts.
"""
