"""The viewer: one page that shows a journal in a browser, live, and what the page asks for.

Needs the extra ``treefold[web]``, which is loaded when the first viewer is started.

``server`` starts and ends it. ``app`` puts a guard (``treefold.http_server``) before the ``page``
(files), the ``api`` (what is asked for once, with ``body`` for what is sent) and the ``stream``
(what is followed).
Streams share a ``lookout``, and each remembers what it has ``told`` its client. The shapes of all
that is sent are those of ``treefold.views.data``.
"""

from treefold.exports import exports

__getattr__, __dir__, __all__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__, {"treefold.views.web.server": ["Viewer", "view"]}
)
