// Search and filter the calls of a run, by text and by state.

import { icon, make, replaceContent, setText, stateIcon } from "./dom.js";
import { grouped } from "./format.js";

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
const DEBOUNCE = 250; // milliseconds without a key, before the server is asked

export class Finder {
  #states = new Set();
  #text = "";
  #found = null; // ids of calls that have the text elsewhere than in their rows
  #timer = 0;
  #drawn = "";

  /** search(text) resolves to the ids of calls that contain it; changed() is called after a change. */
  constructor({ search, changed }) {
    Object.assign(this, { search, changed });
    this.input = make("input.search", {
      type: "search",
      placeholder: "Search",
      "aria-label": "Search in names, arguments, results and transcripts",
      "aria-keyshortcuts": "/",
      input: () => this.#search(),
    });
    this.filters = make("div.filters", { role: "group", "aria-label": "Show only calls in these states" });
    this.count = make("p.count", { role: "status" });
    const box = make("label.search-box", {}, icon("search"), this.input);
    this.element = make("div.tools", {}, box, this.filters, this.count);
  }

  /** The predicate of the rows to show; null if all are shown. */
  get filter() {
    if (!this.#text && !this.#states.size) return null;
    return (row) => this.#hasState(row) && this.#hasText(row);
  }

  #hasState(row) {
    const states = this.#states;
    return !states.size || states.has(row.state) || (states.has("asking") && row.questions.length > 0);
  }

  #hasText(row) {
    if (!this.#text || this.#found?.has(row.id)) return true;
    const fields = [row.path, row.fn, row.args, row.result, row.error, row.status, row.model];
    return fields.filter(Boolean).join(" ").toLowerCase().includes(this.#text);
  }

  /** Show how many of the visible calls match. */
  showCount(items) {
    const matching = items.filter((item) => item.matches).length;
    const words = matching ? `${grouped(matching)} found` : "nothing found";
    setText(this.count, this.filter ? words : "");
  }

  /** Show a filter for each state that occurs, with the number of calls. */
  show(counts) {
    for (const state of this.#states) if (!counts[state]) this.#states.delete(state);
    const sign = JSON.stringify([counts, [...this.#states]]);
    if (sign === this.#drawn) return;
    this.#drawn = sign;
    const focused = document.activeElement?.dataset?.filter;
    const shown = STATES.filter(([state]) => counts[state]);
    replaceContent(this.filters, shown.map(([state, word]) => this.#chip(state, word, counts[state])));
    if (focused) this.filters.querySelector(`[data-filter="${focused}"]`)?.focus();
  }

  #chip(state, word, count) {
    const drawn = state === "asking" ? icon("ask") : stateIcon(state);
    drawn.setAttribute("aria-hidden", "true");
    const attributes = {
      type: "button",
      title: word,
      "data-filter": state,
      "aria-pressed": String(this.#states.has(state)),
      "aria-label": `${word}, ${count}`,
      click: () => this.#press(state),
    };
    return make(
      `button.chip.chip-${state}`,
      attributes,
      drawn,
      make("span.word", {}, word),
      make("span.n", {}, grouped(count)),
    );
  }

  #press(state) {
    if (!this.#states.delete(state)) this.#states.add(state);
    this.changed();
  }

  clear() {
    this.input.value = "";
    this.#search();
  }

  #search() {
    this.#text = this.input.value.trim().toLowerCase();
    this.#found = null;
    this.changed();
    clearTimeout(this.#timer);
    if (this.#text.length > 1) this.#timer = setTimeout(() => this.#searchServer(this.#text), DEBOUNCE);
  }

  async #searchServer(text) {
    try {
      const ids = await this.search(text);
      if (text !== this.#text) return;
      this.#found = new Set(ids);
      this.changed();
    } catch { /* matches in the rows are shown anyway */ }
  }

  close() {
    clearTimeout(this.#timer);
  }
}
