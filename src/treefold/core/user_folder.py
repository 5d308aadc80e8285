"""Where this system keeps what belongs to its user."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class UserFolder:
    """The folder for one kind of files of ours, by the habits of each system."""

    own: str  # the variable that names it
    shared: str  # the variable that names the one it is in, for all programs
    windows: str
    mac: str
    other: str

    def path(self) -> Path:
        """Return where it is, as the variables are now; it need not be there."""
        if own := os.environ.get(self.own):
            return Path(own).expanduser().absolute()
        shared = os.environ.get(self.shared, "")
        if os.path.isabs(shared):
            return Path(shared) / "treefold"
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA")
            home = Path(local) if local else Path.home() / "AppData" / "Local"
            return home / "treefold" / self.windows
        return Path.home() / (self.mac if sys.platform == "darwin" else self.other) / "treefold"
