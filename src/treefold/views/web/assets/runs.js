// The list of runs: the front page. The server filters it, and sends one page of it.

import { icon, make, replaceContent, setState, setText, stateIcon } from "./dom.js";
import { Grid } from "./grid.js";
import { oneLine } from "./text.js";
import { brief, elapsed, exactly, grouped, many, money, when } from "./format.js";

const COLUMNS = [
  ["number.id", "Run"],
  ["function", "Function"],
  ["input", "Input"],
  ["model", "Model"],
  ["state-word", "State"],
  ["number.errors", "Errors"],
  ["number.tokens", "Tokens"],
  ["number.cost", "Cost"],
  ["started", "Started"],
  ["number.time", "Time"],
];
const STATES = [
  ["asking", "waits for you"],
  ["running", "running"],
  ["waiting", "waiting"],
  ["paused", "paused"],
  ["interrupted", "interrupted"],
  ["error", "error"],
  ["canceled", "canceled"],
  ["success", "success"],
];
const DEBOUNCE = 200; // milliseconds without a key, before the list is filtered
const TOGETHER = 10; // summaries in one request
const RENEWED = 3_000; // milliseconds after which the summary of an open run is requested again

/** The filter in the address of the list: state, function, q, page and newest. */
export function runsAddress(query) {
  const given = new URLSearchParams();
  for (const name of ["state", "function", "q", "page", "newest"]) {
    if (query[name] && !(name === "page" && Number(query[name]) === 1)) given.set(name, query[name]);
  }
  return given.size ? `#/?${given}` : "#/";
}

export class RunsView {
  #list = null; // what the server sent last
  #summaries = new Map(); // by run: {summary, of, at}
  #loading = false;
  #closed = false;
  #timer = 0;
  #drawn = "";

  /** open(number) opens a run, change(query) shows other runs; source is that of source.js. */
  constructor({ open, change, source, query }) {
    Object.assign(this, { change, source, query });
    this.grid = new Grid({
      name: "runs",
      role: "grid",
      label: "Runs, the newest first",
      columns: COLUMNS,
      header: 1,
      key: (tree) => tree.id,
      cells: () => [[], drawFunction(), ...COLUMNS.slice(2).map(() => [])],
      redraw: (cells, tree, element) => {
        redrawRun(cells, tree, element);
        redrawSummary(cells, this.#summaries.get(tree.id)?.summary, element);
      },
      opened: (tree) => open(tree.number),
    });
    this.grid.rows.painted = () => this.#loadSummaries();
    this.search = make(
      "input.search",
      {
        type: "search",
        placeholder: "Find a run",
        "aria-label": "Find a run by function, key, state or number",
        input: () => this.#typed(),
      },
    );
    this.count = make("p.count", { role: "status" });
    this.states = make("div.filters", { role: "group", "aria-label": "Show only runs in this state" });
    this.functions = make(
      "select.functions",
      { "aria-label": "Show only runs of this function", change: () => this.#filter({ function: this.functions.value }) },
    );
    this.pager = this.#makePager();
    this.nothing = make("div.nothing", { hidden: true });
    this.element = make("section.home", { "aria-labelledby": "runs-title" },
      make(
        "div.bar-line",
        {},
        make("h1", { id: "runs-title", tabindex: "-1" }, "Runs"),
        this.count,
        this.states,
        this.functions,
        make("label.search-box", {}, icon("search"), this.search),
      ),
      this.nothing,
      this.grid.element,
      this.pager);
    this.search.value = query.q ?? "";
  }

  #makePager() {
    const turn = (page) => {
      const newest = page > 1 ? this.query.newest || this.#list.trees.at(-1)?.id : "";
      this.change({ ...this.query, page, newest });
      this.grid.element.scrollTop = 0;
    };
    this.newer = make(
      "button", { type: "button", click: () => turn(this.#list.page - 1) }, icon("back"), "Newer"
    );
    this.older = make("button", { type: "button", click: () => turn(this.#list.page + 1) }, "Older", icon("chevron"));
    this.place = make("span.place-in-list", { role: "status" });
    this.newestButton = make("button.quiet", { type: "button", click: () => turn(1) }, "Newest");
    return make(
      "nav.pager", { hidden: true, "aria-label": "Pages of runs" },
      this.newestButton, this.newer, this.place, this.older,
    );
  }

  /** Use the filter of another address. */
  setQuery(query) {
    this.query = query;
    if (document.activeElement !== this.search) this.search.value = query.q ?? "";
  }

  show(list) {
    if (!list) return;
    this.#list = list;
    this.#drawFilters();
    this.#drawCount();
    this.grid.show([...list.trees].reverse());
  }

  // Filters

  #typed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#filter({ q: this.search.value.trim() }), DEBOUNCE);
  }

  #filter(changed) {
    this.change({ ...this.query, ...changed, page: "", newest: "" });
  }

  get #isFiltered() {
    return Boolean(this.query.state || this.query.function || this.query.q);
  }

  #drawFilters() {
    const { states = {}, functions = {} } = this.#list;
    const { state, function: name } = this.query;
    const sign = JSON.stringify([states, functions, state, name]);
    if (sign === this.#drawn) return;
    this.#drawn = sign;
    const focused = document.activeElement?.dataset?.filter;
    const shown = STATES.filter(([one]) => states[one] || one === state);
    const useful = shown.length > 1 || Boolean(state);
    replaceContent(this.states, useful ? shown.map((one) => this.#chip(...one, states[one[0]] ?? 0)) : null);
    if (focused) this.states.querySelector(`[data-filter="${focused}"]`)?.focus();
    const names = Object.keys(functions).sort();
    if (name && !(name in functions)) names.unshift(name);
    this.functions.hidden = names.length < 2 && !this.#isFiltered;
    replaceContent(
      this.functions,
      make("option", { value: "" }, "All functions"),
      names.map((one) => make(
        "option", { value: one, selected: one === name }, `${oneLine(one)} (${grouped(functions[one] ?? 0)})`
      )),
    );
  }

  #chip(state, word, count) {
    const drawn = state === "asking" ? icon("ask") : stateIcon(state);
    drawn.setAttribute("aria-hidden", "true");
    const chosen = this.query.state === state;
    return make(
      `button.chip.chip-${state}`,
      {
        type: "button",
        title: word,
        "data-filter": state,
        "aria-pressed": String(chosen),
        "aria-label": `${word}, ${count}`,
        click: () => this.#filter({ state: chosen ? "" : state }),
      },
      drawn,
      make("span.word", {}, word),
      make("span.n", {}, grouped(count)),
    );
  }

  #drawCount() {
    const { trees, total = trees.length, matching = total, page = 1, pages = 1 } = this.#list;
    const all = many(total, "run");
    setText(this.count, this.#isFiltered ? `${grouped(matching)} of ${all}` : total ? all : "");
    this.nothing.hidden = matching > 0;
    const hint = total
      ? [make("p", {}, "No run matches."), make("button", { type: "button", click: () => this.#clear() }, "Show all")]
      : [
        make("p", {}, "No runs yet."),
        this.source.live && make(
          "p.hint", {}, "They appear here as soon as a program starts one with this journal."
        ),
      ];
    if (!this.nothing.hidden) replaceContent(this.nothing, hint);
    this.pager.hidden = pages < 2;
    const { first = 1 } = this.#list;
    const last = first + trees.length - 1;
    setText(this.place, `${grouped(first)}–${grouped(last)} of ${grouped(matching)}`);
    this.newer.disabled = this.newestButton.disabled = page <= 1;
    this.older.disabled = page >= pages;
  }

  #clear() {
    this.search.value = "";
    this.#filter({ state: "", function: "", q: "" });
    this.search.focus();
  }

  // Summaries: only of runs in view, since the server has to read those runs

  async #loadSummaries() {
    if (this.#loading || this.#closed) return;
    const wanted = this.grid.rows.visible().filter((tree) => this.#isDue(tree)).slice(0, TOGETHER);
    if (!wanted.length) return;
    this.#loading = true;
    try {
      const found = await this.source.summaries(wanted.map((tree) => tree.id));
      for (const tree of wanted) this.#summaries.set(
        tree.id, { summary: found[tree.id], of: tree.state, at: performance.now() }
      );
    } catch {
      // Without a connection there is none of them either; the next tick tries again.
      this.#loading = false;
      return;
    }
    this.#loading = false;
    if (!this.#closed) this.grid.rows.paint();
  }

  #isDue(tree) {
    const known = this.#summaries.get(tree.id);
    if (!known || known.of !== tree.state) return true;
    return tree.open && performance.now() - known.at > RENEWED;
  }

  tick() {
    this.grid.rows.paint();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.grid.close();
  }
}

/** The state of a run; a parked one waits for an answer, or for its program to pick that up. */
export function stateOf(tree) {
  if (!tree.open || !tree.parked) return tree.state;
  return tree.questions ? "waits for you" : "answered";
}

/** What a run was forked from. */
export function forkOf(tree) {
  return `fork of run ${tree.source_number}`;
}

function drawFunction() {
  return [make("span.state-slot"), make("bdi.fn"), make("span.names")];
}

function redrawRun(cells, tree, element) {
  const [id, fn, , , state, , , , started, time] = cells;
  if (element.drawn !== tree) {
    element.drawn = tree;
    setText(id, String(tree.number));
    const waiting = tree.open && tree.questions > 0;
    setState(fn.children[0], waiting ? "asking" : tree.state);
    setText(fn.children[1], oneLine(tree.function));
    replaceContent(
      fn.children[2],
      tree.key ? make("bdi.key-word", {}, oneLine(tree.key)) : null,
      tree.source ? make("span.fork-of", {}, icon("fork"), forkOf(tree)) : null,
    );
    if (waiting) replaceContent(state, make("span.badge", {}, many(tree.questions, "question")));
    else setText(state, stateOf(tree));
    setText(started, when(tree.started));
    started.title = exactly(tree.started);
    element.dataset.state = tree.state;
    element.classList.toggle("asking", waiting);
  }
  setText(time, elapsed(tree));
}

function redrawSummary(cells, summary, element) {
  if (element.summary === summary && element.summarized === element.drawn) return;
  element.summary = summary;
  element.summarized = element.drawn;
  const [, , input, model, , errors, tokens, cost] = cells;
  const { models = [] } = summary ?? {};
  setText(input, summary ? oneLine(summary.input) : "");
  input.title = summary?.input ?? "";
  setText(model, models.length ? oneLine(models[0]) + (models.length > 1 ? ` +${models.length - 1}` : "") : "");
  model.title = models.join(", ");
  replaceContent(errors, summary?.errors ? make("span.failed", {}, grouped(summary.errors)) : null);
  errors.title = summary?.errors ? `${many(summary.errors, "call")} of ${grouped(summary.calls)} failed` : "";
  setText(tokens, summary?.tokens ? brief(summary.tokens) : "");
  tokens.title = summary?.tokens ? `${grouped(summary.tokens)} tokens` : "";
  setText(cost, summary?.tokens || Number(summary?.cost) ? money(summary.cost) : "");
  cost.title = summary?.tokens && summary.cost === null ? "the price of a model is unknown" : "";
}
