"""The function by which an agent gives a text as its result."""

from typing import Final

from treefold.agents.results import ReturnResult

return_result: Final = ReturnResult(str)
