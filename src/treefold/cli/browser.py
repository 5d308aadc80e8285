"""Open a page in the user's browser, if it has a window of its own."""

import os
import sys
import threading
import webbrowser


def open_page(url: str) -> None:
    """Open *url* in a browser, unless it would run in this terminal."""
    if _has_display():
        # In a thread, because some browsers return only when they are closed.
        threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()


def _has_display() -> bool:
    if sys.platform in {"darwin", "win32"}:
        return True
    return any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
