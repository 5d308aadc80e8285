"""The package that everything here needs, and what to do if it is not there."""

from treefold.core.errors import UsageError


def no_sdk(error: ModuleNotFoundError) -> UsageError:
    """Return what to raise when a package is missing."""
    missing = str(error.name).partition(".")[0]
    return UsageError(
        f"MCP needs a package that is not installed ({missing}): pip install 'treefold[mcp]'"
    )
