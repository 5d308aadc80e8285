// Why it took so long, and what it cost: a run, or many of them, by kind of time, function and model.

import { make, replaceContent, stateIcon } from "./dom.js";
import { sentence } from "./notices.js";
import { oneLine } from "./text.js";
import { kindWord, splitBar, splitList, splitWords, swatch } from "./timing.js";
import { duration, grouped, many, money, percent } from "./format.js";

const LONGEST = 8; // steps of the critical path that are listed
const LISTED = 100; // functions
const CHOICES = [10, 50, 200, 500]; // numbers of runs

/** The time and cost of one run. */
export class SpentView {
  #tables = new Tables();

  /** load() resolves to a Timing; row(id) is a row of the tree, and link(id) its URL. */
  constructor({ load, row, link }) {
    Object.assign(this, { load, row, link });
    this.summary = make("div");
    this.element = make(
      "div.spent",
      { tabindex: "0", role: "region", "aria-label": "Time and cost of this run" },
      this.summary,
      this.#tables.element,
    );
    this.refresh();
  }

  close() {}

  async refresh() {
    try {
      const timing = await this.load();
      const { data } = timing;
      replaceContent(
        this.summary,
        whereSection("Where the time went", data.split, data.seconds, "Along the critical path: what the end of the run had to wait for, at each moment."),
        this.#longest(timing),
      );
      this.#tables.show(data);
    } catch (error) {
      replaceContent(this.summary, make("p.failed", { role: "alert" }, error.message));
    }
  }

  #longest(timing) {
    const steps = timing.longest(LONGEST).filter(({ seconds }) => seconds > 0);
    if (!steps.length) return null;
    return make(
      "section",
      {},
      make("h2", {}, "Longest on the critical path"),
      make("ol.longest", {}, steps.map(({ id, kind, seconds }) => this.#step(id, kind, seconds, timing.data.seconds))),
    );
  }

  #step(id, kind, seconds, whole) {
    const row = this.row(id);
    return make(
      "li",
      {},
      row ? stateIcon(row.state) : null,
      make("a", { href: this.link(id) }, make("span.path", {}, row?.path ?? ""), make("bdi.fn", {}, oneLine(row?.fn ?? `node ${id}`))),
      make("span.what-kind", {}, swatch(kind), kindWord(kind)),
      make("strong", {}, duration(seconds)),
      make("span.hint", {}, percent(whole > 0 ? seconds / whole : 0)),
    );
  }
}

/** The page about many runs. */
export class TotalsView {
  #tables = new Tables();
  #closed = false;

  /** load(count) resolves to the sums over the newest runs. */
  constructor({ load }) {
    this.load = load;
    this.choice = make(
      "select",
      { "aria-label": "How many runs", change: () => this.#refresh() },
      CHOICES.map((count) => make("option", { value: count, selected: count === 50 }, `Newest ${count} runs`)),
    );
    this.note = make("p.count", { role: "status" });
    this.summary = make("div");
    this.element = make(
      "section.totals",
      { "aria-labelledby": "totals-title" },
      make("div.bar-line", {}, make("h1", { tabindex: "-1", id: "totals-title" }, "Time and cost"), this.choice, this.note),
      make(
        "div.spent",
        { tabindex: "0", role: "region", "aria-label": "Time and cost of many runs" },
        this.summary,
        this.#tables.element,
      ),
    );
    this.#refresh();
  }

  close() {
    this.#closed = true;
  }

  async #refresh() {
    const count = Number(this.choice.value);
    replaceContent(this.note, "reading…");
    try {
      const data = await this.load(count);
      if (this.#closed || count !== Number(this.choice.value)) return;
      replaceContent(this.note, coverage(data));
      replaceContent(
        this.summary,
        data.runs ? whereSection(
          "Where the time went", data.split, data.seconds, "The critical paths of these runs, one after another."
        ) : make("p.hint", {}, "There is no run yet."),
      );
      this.#tables.show(data);
    } catch (error) {
      replaceContent(this.note);
      replaceContent(this.summary, make("p.failed", { role: "alert" }, sentence(error.message)));
    }
  }
}

/** Which runs are in a sum, and why not more. */
function coverage({ runs, calls, all, wanted, unreadable, most_calls: most }) {
  const read = `${many(runs, "run")} of ${grouped(all)}, ${many(calls, "call")}`;
  const cut = runs + unreadable < Math.min(wanted, all) ? `; stopped after ${grouped(most)} calls` : "";
  return `${read}${cut}${unreadable ? `; ${many(unreadable, "run")} could not be read` : ""}`;
}

function whereSection(title, split, seconds, meaning) {
  return make(
    "section",
    {},
    make("h2", {}, title, make("span.total-time", {}, duration(seconds))),
    splitBar(split, seconds),
    splitList(split, seconds),
    make("p.hint", {}, meaning),
  );
}

const COLUMNS = [
  ["name", "", (one) => one.name],
  ["calls", "Calls", (one) => one.calls],
  ["seconds", "Time", (one) => one.seconds],
  ["tokens", "Tokens", (one) => one.tokens],
  ["cost", "Cost", (one) => (one.cost === null ? Infinity : Number(one.cost))],
];

/** Two tables, by function and by model; a click on a column sorts them. */
class Tables {
  #by = "seconds";
  #data = null;

  constructor() {
    this.element = make("div.spent-tables");
  }

  show(data) {
    this.#data = data;
    const focused = document.activeElement?.dataset?.sort;
    const within = this.element.contains(document.activeElement);
    replaceContent(
      this.element,
      data.functions.length ? this.#table("By function", "Function", data.functions) : null,
      data.models.length ? this.#table("By model", "Model", data.models) : null,
      make("p.hint", {}, "Time is the own time of calls, without that of the calls that they made. Calls run in parallel, so the sum can be longer than the run."),
    );
    if (within && focused) this.element.querySelector(`[data-sort="${focused}"]`)?.focus();
  }

  #table(title, first, rows) {
    const [, , value] = COLUMNS.find(([name]) => name === this.#by);
    const sorted = [...rows].sort((a, b) => (this.#by === "name" ? (a.name < b.name ? -1 : 1) : value(b) - value(a)));
    const most = Math.max(...rows.map(({ seconds }) => seconds), 1e-9);
    return make(
      "section",
      {},
      make("h2", {}, title),
      make(
        "div.table-scroll",
        { tabindex: "0", role: "region", "aria-label": title },
        make(
          "table",
          {},
          make("thead", {}, make("tr", {}, COLUMNS.map(([name, word]) => this.#header(title, name, word || first)))),
          make("tbody", {}, sorted.slice(0, LISTED).map((one) => spentRow(one, most))),
        ),
      ),
      sorted.length > LISTED ? make("p.hint", {}, `and ${grouped(sorted.length - LISTED)} more`) : null,
    );
  }

  #header(title, name, word) {
    const sorts = this.#by === name;
    const direction = name === "name" ? "ascending" : "descending";
    const button = make(
      "button.quiet",
      {
        type: "button",
        "data-sort": `${title} ${name}`,
        click: () => {
          this.#by = name;
          this.show(this.#data);
        },
      },
      word,
      make("span", { "aria-hidden": "true" }, sorts ? (name === "name" ? "↑" : "↓") : ""),
    );
    return make(`th.${name}-head`, { scope: "col", "aria-sort": sorts ? direction : null }, button);
  }
}

function spentRow(one, most) {
  const bar = splitBar(one.split, one.seconds);
  bar.style.width = `${(one.seconds / most) * 100}%`;
  const average = one.calls ? `${duration(one.seconds / one.calls)} for each call` : "";
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, make("bdi", {}, oneLine(one.name))),
    make("td", {}, grouped(one.calls)),
    make(
      "td.time-column",
      { title: [splitWords(one.split), average].filter(Boolean).join("; ") },
      make("div.time-cell", {}, make("span.time-value", {}, duration(one.seconds)), make("div.time-bar", {}, bar)),
    ),
    make("td", {}, one.tokens ? grouped(one.tokens) : ""),
    make("td", {}, one.tokens || Number(one.cost) ? money(one.cost) : ""),
  );
}
