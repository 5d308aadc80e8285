"""The viewer: a page that shows a journal in a browser, live, and the server behind it.

Needs the extra ``treefold[web]``, which is loaded when the first viewer is started.

``server`` starts and closes it. ``app`` puts a guard (``treefold.http_server``) before the ``page``
(static files), the ``api`` (requests, with ``body`` for what they carry) and the ``stream``
(server-sent events). Streams share one ``poller``, and each keeps the ``client_state`` of its
client. The shapes of all data are those of ``treefold.views.data``.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
