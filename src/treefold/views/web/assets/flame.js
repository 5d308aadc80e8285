// The flame graph of a run: widths are shares of its time, tokens or money.

import { make, replaceContent, setText } from "./dom.js";
import { oneLine } from "./text.js";
import { brief, duration, money, percent } from "./format.js";

const LINE = 22; // pixels from one lane to the next
const LEAST_DRAWN = 1; // pixels; narrower frames are not drawn
const LEAST_NAMED = 34; // pixels; narrower frames have no name
const HUES = 8;
const LABEL = "Flame graph. Arrow keys move between calls, Enter shows a call, z zooms to it.";
const NOTHING = {
  time: "Nothing has started.",
  tokens: "No tokens were used.",
  money: "No money was spent, or no price is known.",
};
const BY = [["time", "Time"], ["tokens", "Tokens"], ["money", "Money"]];

export class FlameView {
  #frames = [];
  #byId = new Map();
  #lanes = 0;
  #pending = false;
  #elements = new Map();
  by = "time";
  zoom = null; // the id of the frame that takes the full width
  active = null;

  /** load(by) resolves to the graph; open(id) shows a call. */
  constructor({ load, open }) {
    Object.assign(this, { load, open });
    const choose = BY.map(
      ([by, title]) => make(
        "button",
        { type: "button", "aria-pressed": String(by === this.by), click: () => this.#measure(by) },
        title,
      ),
    );
    this.choices = choose;
    this.back = make(
      "button", { type: "button", hidden: true, click: () => this.#zoomTo(null) }, "Whole run"
    );
    this.total = make("p.count", { role: "status" });
    this.asTable = make(
      "button", { type: "button", "aria-pressed": "false", click: () => this.#switch() }, "As a table"
    );
    this.canvas = make("div.flame-canvas");
    this.viewport = make(
      "div.flame",
      {
        tabindex: "0",
        role: "application",
        "aria-label": LABEL,
        keydown: (event) => this.#pressed(event),
        scroll: () => this.#requestPaint(),
      },
      this.canvas,
    );
    this.table = make(
      "div.flame-table",
      { hidden: true, tabindex: "0", role: "region", "aria-label": "Share of each function" },
    );
    this.description = make("p.flame-told", { role: "status" });
    this.element = make("div.flame-view", {},
      make(
        "div.bar-line",
        {},
        make("div.segments", { role: "group", "aria-label": "Measure of the widths" }, choose),
        this.total,
        this.back,
        this.asTable,
      ),
      this.viewport, this.table, this.description);
    this.resized = new ResizeObserver(() => this.#requestPaint());
    this.resized.observe(this.viewport);
    this.refresh();
  }

  close() {
    this.resized.disconnect();
  }

  async refresh() {
    const { by } = this;
    try {
      const graph = await this.load(by);
      if (by !== this.by) return;
      this.#setGraph(graph);
    } catch (error) {
      replaceContent(this.canvas, make("p.failed", { role: "alert" }, error.message));
    }
  }

  #measure(by) {
    this.by = by;
    this.choices.forEach((button, at) => button.setAttribute("aria-pressed", String(BY[at][0] === by)));
    this.refresh();
  }

  #setGraph(graph) {
    this.graph = graph;
    this.#frames = graph.frames.map((frame) => ({ ...frame, children: [], lane: frame.depth }));
    const byPath = new Map(this.#frames.map((frame) => [frame.path, frame]));
    this.#byId = new Map(this.#frames.map((frame) => [frame.id, frame]));
    for (const frame of this.#frames) {
      frame.above = byPath.get(frame.path.slice(0, Math.max(0, frame.path.lastIndexOf(".")))) ?? null;
      frame.above?.children.push(frame);
    }
    if (graph.by === "time") for (const frame of this.#frames) if (!frame.above) assignLanes(frame);
    this.#lanes = this.#frames.reduce((most, frame) => Math.max(most, frame.lane + 1), 0);
    setText(this.total, graph.frames.length ? `${this.#amount(graph.total)} in all` : "");
    if (this.zoom !== null && !this.#byId.has(this.zoom)) this.zoom = null;
    this.canvas.replaceChildren();
    this.#elements.clear();
    if (!(Number(graph.total) > 0)) replaceContent(this.canvas, make("p.hint", {}, NOTHING[this.by]));
    this.#paint();
    this.#fillTable();
  }

  #amount(value) {
    if (value === null || value === undefined) return "price unknown";
    if (this.by === "time") return duration(Number(value));
    return this.by === "tokens" ? `${brief(Number(value))} tokens` : money(value);
  }

  #requestPaint() {
    if (this.#pending) return;
    this.#pending = true;
    requestAnimationFrame(() => {
      this.#pending = false;
      this.#paint();
    });
  }

  /** Draw the frames that are in view and wide enough. */
  #paint() {
    if (!this.graph || !(Number(this.graph.total) > 0)) return;
    const { viewport, canvas } = this;
    const zoomed = this.#byId.get(this.zoom);
    const [start, length, lane] = zoomed ? [zoomed.start, zoomed.width || 1, zoomed.lane] : [0, 1, 0];
    const width = canvas.clientWidth;
    canvas.style.height = `${(this.#lanes - Math.max(0, lane - 3)) * LINE + 8}px`;
    const up = Math.max(0, lane - 3); // keep some callers in view
    const first = viewport.scrollTop / LINE - 2 + up;
    const last = first + viewport.clientHeight / LINE + 4;
    const unused = new Set(this.#elements.keys());
    for (const frame of this.#frames) {
      if (frame.lane < first || frame.lane > last) continue;
      const left = Math.max(0, (frame.start - start) / length);
      const right = Math.min(1, (frame.start + frame.width - start) / length);
      const pixels = (right - left) * width;
      if (pixels < LEAST_DRAWN && frame.id !== this.active) continue;
      unused.delete(frame.id);
      this.#place(frame, left * width, Math.max(2, pixels), (frame.lane - up) * LINE);
    }
    for (const id of unused) {
      this.#elements.get(id).remove();
      this.#elements.delete(id);
    }
  }

  #place(frame, left, pixels, top) {
    let element = this.#elements.get(frame.id);
    if (!element) {
      element = make(
        `div.frame.hue-${hue(frame.fn)}`,
        {
          "data-id": frame.id,
          title: this.#description(frame),
          click: () => this.#select(frame),
          dblclick: () => this.#zoomTo(frame.id),
        },
        make("bdi"),
      );
      element.dataset.state = frame.state;
      element.classList.toggle("agent", frame.agent);
      this.#elements.set(frame.id, element);
      this.canvas.append(element);
    }
    element.style.transform = `translate(${left}px, ${top}px)`;
    element.style.width = `${Math.max(1, pixels - 1)}px`;
    element.classList.toggle("active", frame.id === this.active);
    setText(element.firstElementChild, pixels >= LEAST_NAMED ? oneLine(frame.fn) : "");
  }

  #description(frame) {
    const whole = `${this.#amount(frame.value)}, ${percent(frame.width)} of the run`;
    return `${frame.path} ${oneLine(frame.fn)}: ${whole}; ${this.#amount(frame.own)} of its own; ${frame.state}`;
  }

  #select(frame) {
    this.#activate(frame);
    this.open(frame.id);
  }

  #activate(frame) {
    this.active = frame.id;
    setText(this.description, this.#description(frame));
    this.#paint();
    const top = (frame.lane - Math.max(0, (this.#byId.get(this.zoom)?.lane ?? 0) - 3)) * LINE;
    const { viewport } = this;
    const lowest = top + LINE - viewport.clientHeight;
    if (top < viewport.scrollTop) viewport.scrollTop = top;
    else if (lowest > viewport.scrollTop) viewport.scrollTop = lowest;
  }

  #zoomTo(id) {
    this.zoom = id;
    this.back.hidden = id === null;
    this.viewport.scrollTop = 0;
    this.#paint();
  }

  #pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const now = this.#byId.get(this.active) ?? null;
    const siblings = now?.above?.children ?? this.#frames.filter((frame) => !frame.above);
    const beside = (step) => siblings[siblings.indexOf(now) + step];
    const next = {
      ArrowDown: () => now?.children[0],
      ArrowUp: () => now?.above,
      ArrowRight: () => beside(1),
      ArrowLeft: () => beside(-1),
      Home: () => siblings[0],
      End: () => siblings.at(-1),
    }[event.key];
    if (next) {
      event.preventDefault();
      const to = now ? next() : this.#frames[0];
      if (to) this.#activate(to);
    } else if (event.key === "Enter" && now) this.open(now.id);
    else if (event.key === "z" && now) this.#zoomTo(this.zoom === now.id ? null : now.id);
    else if (event.key === "Escape" && this.zoom !== null) {
      event.stopPropagation();
      this.#zoomTo(null);
    }
  }

  #switch() {
    const table = this.table.hidden;
    this.table.hidden = !table;
    this.viewport.hidden = table;
    this.asTable.setAttribute("aria-pressed", String(table));
    this.#paint();
  }

  /** The same numbers as a table by function, the largest first. */
  #fillTable() {
    const sums = new Map();
    for (const frame of this.#frames) {
      const sum = sums.get(frame.fn) ?? { fn: frame.fn, calls: 0, own: 0 };
      sum.calls += 1;
      sum.own += Number(frame.own ?? 0);
      sums.set(frame.fn, sum);
    }
    const all = [...sums.values()].sort((a, b) => b.own - a.own);
    const whole = all.reduce((sum, { own }) => sum + own, 0) || 1;
    replaceContent(this.table, make("table", {},
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ["Function", "Calls", "Own", "Share"].map((title) => make("th", { scope: "col" }, title)),
        ),
      ),
      make("tbody", {}, all.slice(0, 500).map(({ fn, calls, own }) => make("tr", {},
        make(
          "th", { scope: "row" }, make("bdi", {}, oneLine(fn))
        ), make("td", {}, String(calls)), make("td", {}, this.#amount(own)), make(
          "td", {}, percent(own / whole)
        ))))));
  }
}

/** Assign a lane to every call below a frame; concurrent calls lie below each other. */
function assignLanes(frame) {
  const order = [];
  const stack = [frame];
  while (stack.length) {
    const one = stack.pop();
    order.push(one);
    stack.push(...one.children);
  }
  for (const one of order.reverse()) one.high = 1 + placeSiblings(one.children);
  for (const one of order.reverse()) {
    for (const child of one.children) child.lane = one.lane + 1 + child.offset;
  }
}

/** Place siblings in the highest lanes that are free at their time; returns their total height. */
function placeSiblings(children) {
  const ends = []; // of each lane
  const inOrder = [...children].sort((a, b) => a.start - b.start);
  for (const child of inOrder) {
    let offset = 0;
    for (let lane = 0; lane < offset + child.high; lane += 1) {
      if ((ends[lane] ?? 0) > child.start + 1e-9) offset = lane + 1;
    }
    child.offset = offset;
    for (let lane = offset; lane < offset + child.high; lane += 1) ends[lane] = child.start + child.width;
  }
  return ends.length;
}

function hue(name) {
  let sum = 0;
  for (const char of name) sum = (sum * 31 + char.codePointAt(0)) % 9973;
  return sum % HUES;
}
