"""Stream runs to a web page that answers their questions; set TREEFOLD_MODEL=ollama:qwen3."""

import json
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse

from treefold import Runtime, agent
from treefold.errors import UnknownQuestionError
from treefold.toolbox import human_in_loop

app = FastAPI()
app.get("/")(lambda: FileResponse(Path(__file__).with_name("fastapi_page.html")))
app.add_exception_handler(UnknownQuestionError, lambda _, e: PlainTextResponse(str(e), 409))


@agent(uses=[human_in_loop])
def plan_day(city: str) -> str:
    """Plan a day in a city."""
    return f"Plan a day in {city}. First ask what the visitors like to eat."


@app.get("/plan")
async def plan(request: Request, city: str = Query(min_length=1)) -> StreamingResponse:
    """Start the run of this city, or find it by its key; stream what the page does not know."""
    node = app.state.runtime.invoke(plan_day, {"city": city}, key=city)
    events = app.state.runtime.events(node, int(request.headers.get("last-event-id", 0)))
    lines = (f"id: {e.number}\ndata: {json.dumps(e.to_json())}\n\n" async for e in events)
    return StreamingResponse(lines, media_type="text/event-stream")


@app.post("/answer")
async def answer(question: str, text: str) -> None:
    """Answer a question of a run."""
    app.state.runtime.answer(question, text)


if __name__ == "__main__":
    with Runtime([plan_day], store="plans.db") as app.state.runtime:
        uvicorn.run(app)
