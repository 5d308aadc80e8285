"""A stand-in for the server of a model, which writes down every request that it gets.

It speaks the protocol of OpenAI, so that workers reach it as any other:
``--model openai:scripted@http://127.0.0.1:PORT/v1``. Every reply has a number of its own, by which
it can be found in the journal afterwards.
"""

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Self

JSON = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        question: what was asked; the same words if it is asked again.
        reply: the number of the reply to it.
    """

    question: str
    reply: int


class ModelServer:
    """Answers on the loopback interface until it is closed.

    Args:
        seconds: how long it thinks, more or less.
        pause_after: how many replies it gives before it waits for ``go_on``.

    Attributes:
        asked: all requests, in order.
        paused: set when it waits.
        url: what ``--model`` names.
    """

    def __init__(self, seconds: float, pause_after: int) -> None:
        self.asked: list[Asked] = []
        self.paused = threading.Event()
        self._seconds = seconds
        self._pause_after = pause_after
        self._may_go_on = threading.Event()
        self._numbers = count(1)
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = server.reply(json.loads(self.rfile.read(length)))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = _Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def reply(self, request: JSON) -> bytes:
        """Note a request, think, and return the reply."""
        prompt = next(one["content"] for one in request["messages"] if one["role"] == "user")
        results = [one["content"] for one in request["messages"] if one["role"] == "tool"]
        with self._lock:
            number = next(self._numbers)
            self.asked.append(Asked(f"{prompt} ({len(results)} results)", number))
        if number > self._pause_after and not self._may_go_on.is_set():
            self.paused.set()
            self._may_go_on.wait()
        # Not all runs do the same thing at the same time.
        time.sleep(self._seconds * (0.5 + number * 7 % 10 / 10))
        city = prompt.split(" of ")[1].split(" this week")[0]
        if not results:
            function = {"name": "measure", "arguments": json.dumps({"city": city})}
            call = {"index": 0, "id": f"reply-{number}", "type": "function", "function": function}
            return _stream({"role": "assistant", "tool_calls": [call]}, "tool_calls")
        week: list[float] = json.loads(results[0])
        text = f"{city}: {sum(week) / len(week):.1f} degrees on average (reply-{number})"
        return _stream({"role": "assistant", "content": text}, "stop")

    def go_on(self) -> None:
        """Give the replies that wait, and all others."""
        self._may_go_on.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.go_on()
        self._http.shutdown()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a worker that was killed."""


def _stream(delta: JSON, reason: str) -> bytes:
    usage = {"prompt_tokens": 50, "completion_tokens": 20, "total_tokens": 70}
    first: JSON = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last: JSON = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}
    about = {"id": "reply", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    events = [json.dumps(about | one) for one in (first, last)]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()
