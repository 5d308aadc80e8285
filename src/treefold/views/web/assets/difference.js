// Compare two runs side by side.

import { make, replaceContent, setState, setText, stateIcon } from "./dom.js";
import { Grid } from "./grid.js";
import { outcomeOf } from "./calls.js";
import { longText, oneLine, shownValue } from "./text.js";
import { TranscriptView } from "./transcript.js";
import { highlight } from "./highlight.js";
import { brief, duration, elapsed, grouped, many, money, now } from "./format.js";

export class DifferenceView {
  #rows = [];
  #chosen = 0;

  /** a and b are the numbers of the runs, ids those of their top-level calls. */
  constructor([a, b], ids, context) {
    Object.assign(this, { a, b, ids, context });
    this.only = make("input", { type: "checkbox", change: () => this.#show() });
    this.count = make("p.count", { role: "status" });
    this.both = make("div.both", { "aria-live": "off" });
    this.totals = make("div.run-deltas", { hidden: true });
    this.grid = new Grid({
      name: "difference",
      role: "grid",
      label: "Calls of two runs side by side",
      columns: [["side", ""], ["changed", "Differs in"], ["side", ""]],
      key: (item) => item.index,
      cells: () => [drawSide(), [], drawSide()],
      redraw: redrawPair,
      moved: (item) => this.#open(item),
      opened: (item) => this.#open(item),
    });
    this.links = [a, b].map((number) => make("a", { href: `#/run/${number}` }, String(number)));
    this.element = make("section.compare", { "aria-labelledby": "compare-title" },
      make(
        "div.bar-line",
        {},
        make(
          "h1",
          { id: "compare-title", tabindex: "-1" },
          "Run ",
          this.links[0],
          " beside run ",
          this.links[1],
        ),
        this.count,
        make("label.check", {}, this.only, "Only what differs"),
      ),
      this.totals, this.grid.element, this.both);
    this.names = [`Run ${a}`, `Run ${b}`];
    setText(this.grid.head.children[0], this.names[0]);
    setText(this.grid.head.children[2], this.names[1]);
    document.title = `Run ${a} beside run ${b} · treefold`;
    this.#load();
  }

  close() {
    this.grid.close();
  }

  async #load() {
    try {
      const { rows, same } = await this.context.source.difference(...this.ids);
      this.#rows = rows.map((row, index) => ({ ...row, index }));
      const differing = rows.filter((row) => !row.same).length;
      setText(
        this.count,
        same ? "No difference" : `${many(differing, "differing call")} of ${rows.length}`,
      );
      if (rows[0]?.a && rows[0].b) {
        this.totals.hidden = false;
        replaceContent(this.totals, deltaTable(rows[0].a, rows[0].b, this.names, "Both runs with all their calls"));
      }
      this.#show();
      const first = this.#rows.find((row) => !row.same) ?? this.#rows[0];
      if (first) {
        this.grid.activate(first.index);
        this.#open(first);
      }
    } catch (error) {
      replaceContent(this.both, make("p.failed", { role: "alert" }, error.message));
    }
  }

  #show() {
    this.grid.show(this.only.checked ? this.#rows.filter((row) => !row.same) : this.#rows);
  }

  async #open(item) {
    const chosen = this.#chosen += 1;
    const load = async (row) => (row ? this.context.source.detail(row.id) : null);
    try {
      const [a, b] = await Promise.all([load(item.a), load(item.b)]);
      if (chosen !== this.#chosen) return;
      const sides = [this.#side(a, b, 0, item), this.#side(b, a, 1, item)];
      if (a && b) highlightParts(...sides);
      const isTop = item.a?.parent === null;
      replaceContent(
        this.both,
        item.a && item.b && !isTop && make(
          "div.pair-totals", {}, deltaTable(item.a, item.b, this.names, "This call with all calls below it")
        ),
        sides,
      );
    } catch (error) {
      replaceContent(this.both, make("p.failed", { role: "alert" }, error.message));
    }
  }

  #side(detail, other, which, item) {
    const name = this.names[which];
    const run = [this.a, this.b][which];
    if (!detail) return make(
      "section.one-side",
      { "aria-label": name },
      make("h2", {}, name),
      make("p.hint", {}, "This run has no such call."),
    );
    const part = (title, kind, content) => make(
      `div${item.changed.includes(kind) ? ".differs-here" : ""}`,
      { "data-part": kind },
      make("h3", {}, title),
      content,
    );
    return make("section.one-side", { "aria-label": name },
      make(
        "h2",
        {},
        stateIcon(detail.state),
        make(
          "a",
          { href: `#/run/${run}?call=${detail.path}` },
          make("span.path", {}, detail.path),
          make("bdi", {}, oneLine(detail.fn)),
        ),
        make("span.hint", {}, elapsed(detail)),
      ),
      part("Inputs", "inputs", shownValue(detail.inputs, "Inputs")),
      item.changed.includes("model") && part(
        "Model", "model", make("p", {}, oneLine(detail.model ?? "none"))
      ),
      detail.exception && part(
        "Exception", "error", longText(`${detail.exception.type}: ${detail.exception.message}`)
      ),
      detail.state === "success" && part("Output", "result", shownValue(detail.outputs, "Output")),
      detail.transcript.length > 0 && part("Transcript", "transcript", this.#transcript(detail, other, run)));
  }

  /** A transcript; parts that differ from the other run's at the same index are marked. */
  #transcript(detail, other, run) {
    const view = new TranscriptView(
      {
        id: detail.id,
        source: this.context.source,
        link: (node, path) => `#/run/${run}?call=${path}`,
        row: () => undefined,
        fork: null,
      },
    );
    view.show(detail.transcript);
    detail.transcript.forEach((part, at) => {
      const beside = other?.transcript[at];
      const same = ["kind", "text", "length"].every((name) => beside?.[name] === part[name]);
      if (other && !same) view.element.children[at].classList.add("differs-here");
    });
    return view.element;
  }
}

/** Mark the words in which the parts of two calls differ; messages are compared with those beside them. */
function highlightParts(one, other) {
  for (const part of one.querySelectorAll(":scope > [data-part]")) {
    const beside = other.querySelector(`:scope > [data-part="${part.dataset.part}"]`);
    if (!beside) continue;
    const messages = [...part.querySelectorAll(".transcript > li")];
    if (!messages.length) {
      highlight(part, beside);
      continue;
    }
    const others = [...beside.querySelectorAll(".transcript > li")];
    messages.forEach((message, at) => {
      if (others[at]?.className === message.className) highlight(message, others[at]);
    });
  }
}

/** What two calls took, and by how much the second one took more or less. */
function deltaTable(a, b, names, caption) {
  const time = (row) => (row.started === null ? 0 : (row.ended ?? now()) - row.started);
  const price = (row) => (row.total_cost === null ? null : Number(row.total_cost));
  const lines = [
    ["Tokens", a.total_tokens, b.total_tokens, grouped, brief],
    ["Cost", price(a), price(b), money, money],
    ["Time", time(a), time(b), duration, duration],
  ];
  return make("table.deltas", {}, make("caption.unseen", {}, caption),
    make("thead", {}, make("tr", {}, [...names, "Difference"].reduce(
      (cells, title) => [...cells, make("th", { scope: "col" }, title)], [make("td", {})]
    ))),
    make("tbody", {}, lines.map(([title, one, other, exact, short]) => make("tr", {},
      make("th", { scope: "row" }, title),
      make("td", {}, one === null ? "unknown" : exact(one)),
      make("td", {}, other === null ? "unknown" : exact(other)),
      make("td.delta", {}, delta(one, other, short))))));
}

function delta(one, other, short) {
  if (one === null || other === null) return "";
  const more = other - one;
  if (more === 0) return "the same";
  const sign = more > 0 ? "+" : "−";
  const factor = one > 0 ? other / one : 0;
  const share = factor >= 3 ? `${Math.round(factor)} times` : `${sign}${Math.round(Math.abs(factor - 1) * 100)}%`;
  return `${sign}${short(Math.abs(more))}${one > 0 ? ` (${share})` : ""}`;
}

function drawSide() {
  return [make("span.state-slot"), make("span.path"), make("bdi.fn"), make("bdi.args"), make("bdi.short")];
}

function redrawPair(cells, item, element) {
  const [a, changed, b] = cells;
  redrawSide(a, item.a);
  redrawSide(b, item.b);
  const words = differsIn(item);
  replaceContent(changed, words ? make("span.differs", {}, words) : make("span.hint", { title: "the same" }, "="));
  element.classList.toggle("differing", !item.same);
}

function differsIn({ a, b, changed }) {
  if (a === null) return "only in the second";
  return b === null ? "only in the first" : changed.join(", ");
}

function redrawSide(cell, row) {
  const [state, path, fn, args, short] = cell.children;
  cell.classList.toggle("missing", row === null);
  setState(state, row?.state ?? null);
  setText(path, row?.path ?? "");
  setText(fn, row ? oneLine(row.fn) : "");
  setText(args, row ? `(${oneLine(row.args)})` : "");
  const outcome = row ? outcomeOf(row) : { text: "" };
  setText(short, outcome.text ? `→ ${outcome.text}` : "");
  if (row) cell.style.setProperty("--level", String(Math.min(row.path.split(".").length - 1, 16)));
}
