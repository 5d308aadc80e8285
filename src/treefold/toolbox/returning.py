"""The function by which an agent returns a text as its result."""

from typing import Final

from treefold.agents.results import ReturnResult

# In a file of its own, because it loads pydantic, which takes a while.
return_result: Final = ReturnResult(str)
