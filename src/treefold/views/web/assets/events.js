// Read server-sent events from a response: fetch can send a token in a header, EventSource cannot.

/** Yield the events of a response: {event, id, data}, or null for a keep-alive comment. */
export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let event = fresh();
  try {
    for await (const line of lines(reader)) {
      if (line === "") {
        if (event.data.length) yield { event: event.name, id: event.id, data: event.data.join("\n") };
        event = fresh();
      } else if (line.startsWith(":")) yield null;
      else take(event, line);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Yield complete lines; the chunks of a long one are joined once. */
async function* lines(reader) {
  let pieces = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    let from = 0;
    for (let end = value.indexOf("\n"); end >= 0; end = value.indexOf("\n", from)) {
      pieces.push(value.slice(from, end));
      const line = pieces.join("");
      pieces = [];
      from = end + 1;
      yield line.endsWith("\r") ? line.slice(0, -1) : line;
    }
    if (from < value.length) pieces.push(value.slice(from));
  }
}

function fresh() {
  return { name: "message", id: null, data: [] };
}

function take(event, line) {
  const colon = line.indexOf(":");
  const field = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
  if (field === "event") event.name = value;
  else if (field === "id") event.id = value;
  else if (field === "data") event.data.push(value);
}
