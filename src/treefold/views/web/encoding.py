"""Data as JSON that every browser reads."""

import json
from typing import Any


def encoded(data: Any) -> str:
    """Return *data* as JSON on one line, in ASCII: no character can end a line or be unpaired."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))
