"""A misbehaving server without the SDK; its argument selects the behaviour."""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

MANNER = sys.argv[1] if len(sys.argv) > 1 else "good"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}

HOSTILE: list[dict[str, Any]] = [
    {"name": "shouting", "description": "\x1b[2J\x00red\r\nalert\x07" + "x" * 50_000},
    {"name": "a" * 300, "description": "long"},
    {"name": "a" * 299 + "b", "description": "long, too"},
    {"name": "../../etc/passwd", "description": "odd"},
    {"name": "…", "description": "odder"},
    {"name": "_", "inputSchema": {"type": "object", "required": ["x"]}},
    {"name": "enum", "inputSchema": {"type": "object", "properties": {"x": {"enum": [{}, []]}}}},
    {"name": "ref", "inputSchema": {"type": "object", "$ref": "#/$defs/none"}},
    {"name": "types", "inputSchema": {"type": "object", "properties": {"x": {"type": [1, {}]}}}},
]


# An answer that fits none of these: the first takes ``re`` for ever, the second any validator.
SLOW: dict[str, dict[str, Any]] = {
    "pattern": {"properties": {"text": {"pattern": "^(a+)+$"}}},
    "references": {
        "$ref": "#/$defs/0",
        "$defs": {
            **{str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(60)},
            "60": {"type": "object"},
        },
    },
    "number": {"properties": {"text": {"type": "number"}}},
}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def listed(params: dict[str, Any]) -> dict[str, Any]:
    if MANNER == "endless":
        return {"tools": [], "nextCursor": "more"}
    if MANNER == "wrong":
        return {"tools": [{"name": "x", "inputSchema": {"type": "object", "required": "x"}}]}
    if MANNER == "hostile":
        return {"tools": [{"inputSchema": NO_ARGUMENTS, **tool} for tool in HOSTILE]}
    if MANNER == "slow":
        return {
            "tools": [
                {"name": name, "inputSchema": TEXT, "outputSchema": {"type": "object", **schema}}
                for name, schema in SLOW.items()
            ]
        }
    if MANNER == "pages":
        page = int(params.get("cursor") or 0)
        tool = {"name": f"page{page}", "inputSchema": NO_ARGUMENTS}
        return {"tools": [tool]} | ({"nextCursor": str(page + 1)} if page < 4 else {})
    names = ["echo", "hang", "die", "close", "start", "junk"]
    return {"tools": [{"name": name, "inputSchema": TEXT} for name in names]}


def call(params: dict[str, Any]) -> dict[str, Any] | None:
    words = params.get("arguments", {}).get("text", "")
    if MANNER == "slow":
        return {**text(words), "structuredContent": {"text": words}}
    match params["name"]:
        case "hang":
            return None
        case "die":
            sys.stderr.write(words)
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        case "close":
            os.close(1)
            time.sleep(300)
        case "start":
            for apart in (False, True):
                subprocess.Popen(["sleep", "300"], start_new_session=apart)
        case "junk":
            sys.stdout.write("this is no message\n\n{}\n\xff\n")
        case _:
            pass
    return text(words)


def answer(request: dict[str, Any]) -> None:
    params = request.get("params") or {}
    match request.get("method"):
        case "initialize" if MANNER == "refuse":
            say({"id": request["id"], "error": {"code": -32000, "message": "no entry: s3cret-key"}})
        case "initialize":
            info = {"name": "bare", "version": "1"}
            version = params["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            say({"id": request["id"], "result": result})
        case "tools/list":
            if MANNER != "no tools":
                say({"id": request["id"], "result": listed(params)})
            else:
                say({"id": request["id"], "error": {"code": -32601, "message": "what?"}})
            while MANNER == "deaf":
                time.sleep(300)
        case "tools/call":
            if (result := call(params)) is not None:
                say({"id": request["id"], "result": result})
        case _ if "id" in request and "method" in request:
            say({"id": request["id"], "error": {"code": -32601, "message": "what?"}})
        case _:
            pass


def misbehave() -> None:
    match MANNER:
        case "exit":
            sys.stderr.write("cannot read config: key s3cret-key is wrong\n")
            sys.exit(7)
        case "silent":
            time.sleep(300)
        case "garbage":
            while True:
                sys.stdout.write("Listening on port 8080...\n")
                sys.stdout.flush()
                time.sleep(0.001)
        case "endless line":
            while True:
                sys.stdout.write("0" * 4096)
        case "banner":
            sys.stdout.write("Welcome to bare 1.0\n\n")
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case _:
            pass


if __name__ == "__main__":
    misbehave()
    for line in sys.stdin:
        answer(json.loads(line))
    while MANNER == "stubborn":
        time.sleep(300)
