"""Open a page in the person's browser, if there is one with a window."""

import os
import sys
import threading
import webbrowser


def open_page(url: str) -> None:
    """Open *url* in a browser, unless that would take over the terminal."""
    if _has_screen():
        # some come back only when they are closed
        threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()


def _has_screen() -> bool:
    if sys.platform in {"darwin", "win32"}:
        return True
    return any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
