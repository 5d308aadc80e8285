"""Start an example as a person does, against a server on the loopback."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm_python
from chat_helpers import Said, written
from wire import ModelServer, Request
from wire.openai_wire import MODEL
from wire.replies import compact

EXAMPLES = Path(__file__).parent.parent / "examples"


@dataclass(frozen=True)
class Run:
    """What there is to see of an example that has ended."""

    code: int | None
    printed: str
    complaints: str = ""


async def start(
    name: str, *options: str, server: ModelServer | None = None, typed: str = "", **variables: str
) -> Run:
    """Run the example *name* with *options*; with a *server*, its variables say where that is."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TREEFOLD_")}
    if server is not None:
        variables = {"TREEFOLD_BASE_URL": f"{server.url}/v1", "TREEFOLD_MODEL": MODEL} | variables
    done = await asyncio.to_thread(
        warm_python.run, str(EXAMPLES / f"{name}.py"), *options, said=typed, env=kept | variables
    )
    return Run(done.returncode, done.stdout, done.stderr)


def calling(id: str, name: str, **args: Any) -> tuple[str, str, str]:
    """Return a call that a model asks for."""
    return (id, name, compact(args))


def said(request: Request) -> list[Said]:
    """Return what *request* says to the model, whatever its system prompt is."""
    return written(request.json["messages"][1:])
