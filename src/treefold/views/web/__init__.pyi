"""What ``treefold.views.web`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from treefold.views.web.server import Viewer as Viewer, view as view
