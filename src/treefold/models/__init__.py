"""Talk to language models: the only place that opens a connection to one.

Example:
    >>> from treefold.models import find_model
    >>> find_model("openai:qwen3@ollama")
    <OpenAIModel openai:qwen3@http://localhost:11434/v1>
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
