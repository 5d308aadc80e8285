"""Lines in files, by which processes tell a test what they did."""

from pathlib import Path


def note(folder: str, file: str, line: str) -> None:
    """Append a line to a file."""
    with (Path(folder) / file).open("a") as opened:
        opened.write(f"{line}\n")


def noted(folder: Path, file: str) -> list[str]:
    """Return the lines of a file."""
    path = folder / file
    return path.read_text().split() if path.exists() else []
