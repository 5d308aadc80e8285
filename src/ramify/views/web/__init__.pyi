"""What ``ramify.views.web`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from ramify.views.web.server import Viewer as Viewer, view as view
