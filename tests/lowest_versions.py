"""Prints the lower bounds of pyproject.toml as constraints for pip, for ``make test-lowest``."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def constraints(project: dict[str, Any]) -> Iterator[str]:
    """Yield ``name==version`` for each dependency, also of the extras and of the tests."""
    about = project["project"]
    lists = [
        about["dependencies"],
        *about["optional-dependencies"].values(),
        project["dependency-groups"]["test"],
    ]
    for requirement in (one for requirements in lists for one in requirements):
        if bound := re.match(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)", requirement):
            yield f"{bound[1]}=={bound[2]}"


if __name__ == "__main__":
    found = constraints(tomllib.loads(PROJECT.read_text(encoding="utf-8")))
    sys.stdout.writelines(f"{one}\n" for one in sorted(set(found)))
